// Requests while a person drags: one at a time, and only the latest matters.

/** Returns a function that does the work for the newest argument, never twice at once. */
export function latestOnly<A, R>(
  work: (argument: A, signal: AbortSignal) => Promise<R>,
  onResult: (result: R) => void,
  onError: (error: Error) => void,
): { ask: (argument: A) => void; end: () => void } {
  const controller = new AbortController();
  let waiting: { argument: A } | null = null;
  let isBusy = false;
  const next = async () => {
    while (waiting && !controller.signal.aborted) {
      const { argument } = waiting;
      waiting = null;
      try {
        const result = await work(argument, controller.signal);
        if (!controller.signal.aborted) onResult(result);
      } catch (error) {
        if (!controller.signal.aborted) onError(error as Error);
      }
    }
    isBusy = false;
  };
  return {
    ask(argument) {
      waiting = { argument };
      if (isBusy) return;
      isBusy = true;
      void next();
    },
    end: () => controller.abort(),
  };
}
