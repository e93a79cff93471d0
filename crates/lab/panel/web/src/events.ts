// Follows the events of a run.
import { api } from "./api";
import { type RunProgress, addEvent, emptyProgress } from "./progress";
import { type RunEvent, isOver } from "./types";

/** The least time between two updates of the page, in ms. */
const UPDATE_MS = 100;

/**
 * Calls `onChange` whenever something has happened, at most ten times a second, until the run is
 * over. The browser continues after a lost connection from the event that it got last. Returns a
 * function that ends this.
 */
export function followRun(id: string, onChange: (progress: RunProgress) => void): () => void {
  const progress = emptyProgress();
  const source = new EventSource(api.eventsPath(id));
  let timer: number | null = null;
  const changed = () => {
    timer ??= window.setTimeout(() => {
      timer = null;
      onChange(progress);
    }, UPDATE_MS);
  };
  source.onmessage = (message) => {
    addEvent(progress, JSON.parse(message.data) as RunEvent, performance.now());
    if (progress.state && isOver(progress.state)) source.close();
    changed();
  };
  source.onerror = () => {
    // Otherwise the browser tries again by itself.
    if (source.readyState !== EventSource.CLOSED) return;
    progress.error = "The server does not send the events of this run. Reload the page.";
    changed();
  };
  return () => {
    source.close();
    if (timer !== null) window.clearTimeout(timer);
  };
}
