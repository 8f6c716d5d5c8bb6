// SSE parser. Pure.

/** Incremental parser: feed it chunks of text, it returns the complete events. */
export class EventReader {
  #buffer = "";
  #event = emptyEvent();
  /** The id of the last complete event. */
  lastId = null;

  feed(text) {
    // A CR at the end may be the first half of a CRLF, so it stays in the buffer.
    const lines = (this.#buffer + text).split(/\r\n|\n|\r(?!$)/);
    this.#buffer = lines.pop();
    const events = [];
    for (const line of lines) {
      if (line === "") {
        this.#finishEvent(events);
      } else {
        this.#parseLine(line);
      }
    }
    return events;
  }

  #parseLine(line) {
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") {
      this.#event.data.push(value);
    } else if (field === "event") {
      this.#event.type = value;
    } else if (field === "id") {
      this.#event.id = value;
    }
  }

  #finishEvent(events) {
    const { type, id, data } = this.#event;
    this.#event = emptyEvent();
    this.lastId = id ?? this.lastId;
    if (data.length > 0) {
      events.push({ type, data: data.join("\n") });
    }
  }
}

function emptyEvent() {
  return { type: "message", id: null, data: [] };
}
