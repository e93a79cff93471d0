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

export function goTo(path: string): void {
  location.hash = `#/${path}`;
}
