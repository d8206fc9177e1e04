import { expect, test } from "vitest";
import { fitting } from "../src/sheet";

const context = { font: "", measureText: (text: string) => ({ width: text.length }) } as unknown as CanvasRenderingContext2D;

test.each([
  ["web-12345-abcde", 20, 0, "web-12345-abcde"],
  ["web-12345-abcde", 8, 0, "web-123…"],
  ["web-12345-abcde", 8, 0.6, "web…bcde"],
  ["web", 1, 0.6, ""],
  ["web", 0, 0, ""],
  ["web", -5, 0, ""],
  ["", -5, 0, ""],
])("%s in %d is shortened to what there is room for", (text, room, tail, expected) => {
  const found = fitting(context, text, room, tail);
  expect(found.length).toBeLessThanOrEqual(Math.max(0, room));
  expect(found).toBe(expected);
});
