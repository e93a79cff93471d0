import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { api } from "../api";

interface Props {
  id: string;
  note: string;
  onError: (text: string) => void;
}

/** A note that is edited where it stands: Enter saves it, Escape does not. */
export function NoteField({ id, note, onError }: Props) {
  const [saved, setSaved] = useState(note);
  const [typed, setTyped] = useState<string | null>(null);
  const input = useRef<HTMLInputElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const isEditing = typed !== null;
  const wasEditing = useRef(false);
  useLayoutEffect(() => {
    input.current?.focus();
    // Unless the person has gone elsewhere, the focus stays here.
    if (wasEditing.current && document.activeElement === document.body) button.current?.focus();
    wasEditing.current = isEditing;
  }, [isEditing]);
  const save = async () => {
    if (typed === null) return;
    setTyped(null);
    if (typed === saved) return;
    try {
      await api.annotate(id, typed);
      setSaved(typed);
    } catch (error) {
      onError((error as Error).message);
      setTyped(typed);
    }
  };
  if (!isEditing) {
    return (
      <button ref={button} type="button" class="edit" aria-label={saved ? `Note: ${saved}. Edit` : "Add a note"} onClick={() => setTyped(saved)}>
        {saved || "add a note"}
      </button>
    );
  }
  return (
    <input
      ref={input}
      type="text"
      aria-label="Note"
      value={typed}
      onInput={(event) => setTyped(event.currentTarget.value)}
      onBlur={save}
      onKeyDown={(event) => {
        if (event.key === "Escape") setTyped(null);
        if (event.key !== "Enter") return;
        // Otherwise the key would also press the button that takes the focus.
        event.preventDefault();
        void save();
      }}
    />
  );
}
