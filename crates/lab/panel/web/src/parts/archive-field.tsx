import { useState } from "preact/hooks";
import { type ChosenFile, type FileChoice, readArchive, readFolder } from "../files";
import { bytes } from "../format";
import type { ArchiveKnob } from "../types";

interface Props {
  knob: ArchiveKnob;
  choice: FileChoice;
  /** The name of the folder or the archive that an earlier run had. */
  earlier: string | null;
  isRefused: boolean;
  onChange: (choice: FileChoice) => void;
}

/** A folder or an archive from the reader's disk, or none. */
export function ArchiveField({ knob, choice, earlier, isRefused, onChange }: Props) {
  const [problem, setProblem] = useState<string | null>(null);
  const id = `knob-${knob.name}`;
  const choose = async (reading: Promise<ChosenFile>) => {
    try {
      const chosen = await reading;
      setProblem(null);
      onChange(chosen);
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  const button = (isFolder: boolean) => (
    <label class="button file-button">
      <input
        id={isFolder ? `${id}-folder` : id}
        type="file"
        class="hidden"
        accept={isFolder ? undefined : knob.accept}
        ref={(input) => {
          if (isFolder) input?.setAttribute("webkitdirectory", "");
        }}
        aria-invalid={isRefused || problem !== null}
        aria-describedby={`${id}-choice ${id}-help`}
        onChange={(event) => {
          const input = event.currentTarget;
          const files = [...(input.files ?? [])];
          const [first] = files;
          // Without a file, the dialog was closed.
          if (first) void choose(isFolder ? readFolder(files, knob) : readArchive(first, knob));
          // So that the same one can be chosen again after a change.
          input.value = "";
        }}
      />
      {isFolder ? "Choose a folder" : "Choose an archive"}
    </label>
  );
  return (
    <div class="field" role="group" aria-labelledby={`${id}-label`}>
      <p id={`${id}-label`} class="label">{knob.label}</p>
      <div class="buttons">
        {button(true)}
        {button(false)}
        {choice && (
          <button
            type="button"
            onClick={() => {
              setProblem(null);
              onChange(null);
            }}
          >
            Remove it
          </button>
        )}
        <span id={`${id}-choice`} class="file-choice" aria-live="polite">{choiceText(choice, earlier)}</span>
      </div>
      <p class="error" role="alert" hidden={!problem}>{problem}</p>
      <p id={`${id}-help`} class="hint">
        {knob.help && `${knob.help.replace(/\.$/, "")}. `}At most {bytes(knob.max_bytes)}. An archive is {knob.accept.replaceAll(",", ", ")}.
      </p>
    </div>
  );
}

function choiceText(choice: FileChoice, earlier: string | null) {
  if (choice && choice !== "example") return <><b>{choice.name}</b>, {bytes(choice.bytes)}</>;
  return earlier ? `The earlier run had ${earlier}. Choose it again.` : "none";
}
