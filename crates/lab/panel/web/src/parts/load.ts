import { useCallback, useEffect, useState } from "preact/hooks";

export interface Loaded<T> {
  data: T | null;
  error: string | null;
  reload: () => void;
}

/** What a request returns, asked again when one of `inputs` changes. */
export function useLoaded<T>(request: () => Promise<T>, inputs: unknown[]): Loaded<T> {
  const [data, setData] = useState<T | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [version, setVersion] = useState(0);
  const reload = useCallback(() => setVersion((it) => it + 1), []);
  useEffect(() => {
    let isCurrent = true;
    request().then(
      (result) => {
        if (!isCurrent) return;
        setData(result);
        setError(null);
      },
      (failure: Error) => isCurrent && setError(failure.message),
    );
    return () => {
      isCurrent = false;
    };
  }, [...inputs, version]);
  return { data, error, reload };
}

/** Calls `work` at once and then regularly, while the page is visible. */
export function usePolled(work: () => Promise<unknown>, interval_ms: number, inputs: unknown[]): void {
  useEffect(() => {
    let timer = 0;
    let isOver = false;
    const next = async () => {
      if (!document.hidden) await work();
      if (!isOver) timer = window.setTimeout(next, interval_ms);
    };
    void next();
    return () => {
      isOver = true;
      window.clearTimeout(timer);
    };
  }, inputs);
}
