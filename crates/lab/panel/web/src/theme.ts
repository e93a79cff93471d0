// Dark and light: as the system says, unless the reader chooses.
import { useEffect, useReducer } from "preact/hooks";

export type Theme = "auto" | "light" | "dark";

const KEY = "theme";
const CHANGED = "themechange";

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
  dispatchEvent(new Event(CHANGED));
}

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

/** A colour of the style sheet. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** How many colours and marks lines have. */
export const SERIES = 6;

export function seriesColour(index: number): string {
  return colour(`series-${(index % SERIES) + 1}`);
}
