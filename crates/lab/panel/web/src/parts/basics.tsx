// Small parts that several views use.
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { hasNavigated } from "../router";
import { copyText } from "../save";
import type { RunState } from "../types";

export function ErrorLine({ text }: { text: string | null }) {
  return (
    <p class="error" role="alert" hidden={!text}>
      {text}
    </p>
  );
}

/** The heading of a view. It gets the focus when a person goes to the view, so that a screen reader reads it. */
export function ViewHeading({ children, about }: { children: ComponentChildren; about?: ComponentChildren }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useLayoutEffect(() => {
    if (hasNavigated()) heading.current!.focus({ preventScroll: true });
  }, []);
  return (
    <header class="view-heading">
      <h1 ref={heading} tabIndex={-1}>{children}</h1>
      {about && <p>{about}</p>}
    </header>
  );
}

const SIGNS: Record<RunState, string> = {
  queued: "…",
  running: "▶",
  finished: "✓",
  stopped: "■",
  failed: "✕",
  interrupted: "‖",
};

export function StateBadge({ state }: { state: RunState }) {
  return (
    <span class={`badge state-${state}`}>
      <span aria-hidden="true">{SIGNS[state]}</span> {state}
    </span>
  );
}

export function CopyButton({ text, children }: { text: () => string | Promise<string>; children: ComponentChildren }) {
  const [said, setSaid] = useState<string | null>(null);
  useEffect(() => {
    if (said === null) return;
    const timer = window.setTimeout(() => setSaid(null), 2500);
    return () => window.clearTimeout(timer);
  }, [said]);
  const copy = async () => {
    try {
      setSaid((await copyText(await text())) ? "Copied" : "The browser does not allow it");
    } catch (error) {
      setSaid((error as Error).message);
    }
  };
  return (
    <button type="button" onClick={copy}>
      <span aria-live="polite">{said ?? children}</span>
    </button>
  );
}

interface ConfirmProps {
  title: string;
  text: string;
  action: string;
  onConfirm: () => void;
  onCancel: () => void;
}

/** Asks before something cannot be undone. */
export function ConfirmDialog({ title, text, action, onConfirm, onCancel }: ConfirmProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current!.showModal(), []);
  return (
    <dialog ref={dialog} aria-labelledby="confirm-title" onClose={onCancel}>
      <h2 id="confirm-title">{title}</h2>
      <p>{text}</p>
      <div class="buttons">
        <button type="button" autofocus onClick={onCancel}>Keep it</button>
        <button type="button" class="danger" onClick={onConfirm}>{action}</button>
      </div>
    </dialog>
  );
}
