// The search's worker where the page is a file: browsers start none there, so its script runs in a hidden frame.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = `<script src="${url}"></script>`;
      this.worker = new Promise((loaded) => {
        frame.onload = () => {
          frame.contentWindow.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", {data}));
          loaded(frame.contentWindow);
        };
      });
      document.body.append(frame);
    }
    postMessage(data) {
      this.worker.then((worker) => worker.dispatchEvent(new MessageEvent("message", {data})));
    }
  };
