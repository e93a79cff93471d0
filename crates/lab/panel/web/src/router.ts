// The address of a view: the part after "#".
import { useEffect, useState } from "preact/hooks";

export interface Route {
  view: string;
  /** The part after the view, such as the name of a run. */
  rest: string;
  query: URLSearchParams;
}

export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [view = "", ...rest] = path.split("/");
  return { view: view || "run", rest: decodeURIComponent(rest.join("/")), query: new URLSearchParams(query) };
}

/** The only run that the reader can see, if the page was opened by a link to it. */
export const guestRun: string | null = new URLSearchParams(location.search).get("run");

let navigated = false;

/** Whether the reader has gone from one view to another since the page was opened. */
export function hasNavigated(): boolean {
  return navigated;
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const update = () => {
      navigated = true;
      setRoute(parseRoute(location.hash));
    };
    addEventListener("hashchange", update);
    return () => removeEventListener("hashchange", update);
  }, []);
  return route;
}

/** Changes the address without a new entry in the browser's history. */
export function replaceRoute(view: string, query: Record<string, string | null>): void {
  const given = Object.entries(query).filter((entry): entry is [string, string] => entry[1] !== null);
  const parameters = new URLSearchParams(given);
  location.replace(`#/${view}?${parameters}`);
}

export function goTo(path: string): void {
  location.hash = `#/${path}`;
}
