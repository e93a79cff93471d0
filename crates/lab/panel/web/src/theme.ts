// Dark and light: as the system says, unless the reader chooses.
import { useEffect, useReducer } from "preact/hooks";

export type Theme = "auto" | "light" | "dark";

const KEY = "theme";
const CHANGED = "themechange";

/** The colours that were asked for since the last change. */
const known = new Map<string, string>();

export function chosenTheme(): Theme {
  const stored = localStorage.getItem(KEY);
  return stored === "light" || stored === "dark" ? stored : "auto";
}

export function applyTheme(theme: Theme): void {
  if (theme === "auto") {
    localStorage.removeItem(KEY);
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem(KEY, theme);
    document.documentElement.dataset.theme = theme;
  }
  known.clear();
  dispatchEvent(new Event(CHANGED));
}

// Before the components hear of it.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => known.clear());

/** A number that changes when colours do, for what is drawn on a canvas. */
export function useThemeVersion(): number {
  const [version, changed] = useReducer((count: number) => count + 1, 0);
  useEffect(() => {
    const system = matchMedia("(prefers-color-scheme: dark)");
    const update = () => changed(undefined);
    system.addEventListener("change", update);
    addEventListener(CHANGED, update);
    return () => {
      system.removeEventListener("change", update);
      removeEventListener(CHANGED, update);
    };
  }, []);
  return version;
}

/** A colour of the style sheet as "rgb(0, 0, 0)", which a canvas understands. */
export function colour(name: string): string {
  const found = known.get(name);
  if (found !== undefined) return found;
  // Only an element that has the colour tells which one of the two it is.
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.documentElement.append(probe);
  const resolved = getComputedStyle(probe).color;
  probe.remove();
  known.set(name, resolved);
  return resolved;
}

/** How many colours and marks lines have. */
export const SERIES = 6;

export function seriesColour(index: number): string {
  return colour(`series-${(index % SERIES) + 1}`);
}
