import "uplot/dist/uPlot.min.css";
import "./style.css";
import { render } from "preact";
import { App } from "./app";
import { open } from "./store";

render(<App />, document.getElementById("app")!);
void open();
