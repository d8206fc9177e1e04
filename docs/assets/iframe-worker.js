// Browsers refuse to start a worker in a page that was opened as a file, and the search of the site is one. There a worker is
// a hidden frame that runs the same script: messages go to the frame's window and come back to this object.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.body.appendChild(document.createElement("iframe"))
      frame.hidden = true
      this.inside = frame.contentWindow
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}))
      this.loaded = new Promise(done => {
        const script = frame.contentDocument.createElement("script")
        script.src = url
        script.onload = done
        frame.contentDocument.body.appendChild(script)
      })
    }

    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", {data})))
    }
  }
}
