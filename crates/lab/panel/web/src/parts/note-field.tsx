import { useEffect, useRef, useState } from "preact/hooks";
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
  const isEditing = typed !== null;
  useEffect(() => input.current?.focus(), [isEditing]);
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
      <button type="button" class="edit" aria-label={saved ? `Note: ${saved}. Edit` : "Add a note"} onClick={() => setTyped(saved)}>
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
        if (event.key === "Enter") void save();
        if (event.key === "Escape") setTyped(null);
      }}
    />
  );
}
