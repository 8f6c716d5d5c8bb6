// Server-sent events out of a stream of text. Pure.

/** Feed it text as it comes; it gives back the events that are complete. */
export class EventReader {
  #rest = "";
  #event = blank();
  /** The id of the last event that was complete. */
  lastId = null;

  feed(text) {
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    const events = [];
    for (const line of lines) {
      if (line === "") {
        this.#finish(events);
      } else {
        this.#take(line);
      }
    }
    return events;
  }

  #take(line) {
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

  #finish(events) {
    const { type, id, data } = this.#event;
    this.#event = blank();
    this.lastId = id ?? this.lastId;
    if (data.length > 0) {
      events.push({ type, data: data.join("\n") });
    }
  }
}

function blank() {
  return { type: "message", id: null, data: [] };
}
