import { useState } from "preact/hooks";
import { type FileChoice, readFile } from "../files";
import { bytes } from "../format";
import type { FileKnob } from "../types";

interface Props {
  knob: FileKnob;
  choice: FileChoice;
  /** The name of the file that an earlier run had. */
  earlier: string | null;
  isRefused: boolean;
  onChange: (choice: FileChoice) => void;
}

/** A text file from the reader's disk, or the example of the template. */
export function FileField({ knob, choice, earlier, isRefused, onChange }: Props) {
  const [problem, setProblem] = useState<string | null>(null);
  const id = `knob-${knob.name}`;
  const choose = async (file: File | undefined) => {
    // The dialog was closed.
    if (!file) return;
    try {
      const chosen = await readFile(file, knob);
      setProblem(null);
      onChange(chosen);
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  return (
    <div class="field" role="group" aria-labelledby={`${id}-label`}>
      <p id={`${id}-label`} class="label">{knob.label}</p>
      <div class="buttons">
        <label class="button file-button">
          <input
            id={id}
            type="file"
            class="hidden"
            accept={knob.accept}
            aria-invalid={isRefused || problem !== null}
            aria-describedby={`${id}-choice ${id}-help`}
            onChange={(event) => {
              const input = event.currentTarget;
              void choose(input.files?.[0]);
              // So that the same file can be chosen again after a change.
              input.value = "";
            }}
          />
          {choice && choice !== "example" ? "Choose another file" : "Choose a file"}
        </label>
        {knob.has_example && choice !== "example" && (
          <button
            type="button"
            onClick={() => {
              setProblem(null);
              onChange("example");
            }}
          >
            Use the example
          </button>
        )}
        <span id={`${id}-choice`} class="file-choice" aria-live="polite">{choiceText(choice, earlier)}</span>
      </div>
      <p class="error" role="alert" hidden={!problem}>{problem}</p>
      <p id={`${id}-help`} class="hint">
        {knob.help && `${knob.help.replace(/\.$/, "")}. `}At most {bytes(knob.max_bytes)}.
      </p>
    </div>
  );
}

function choiceText(choice: FileChoice, earlier: string | null) {
  if (choice === "example") return "the example";
  if (choice) return <><b>{choice.name}</b>, {bytes(choice.bytes)}</>;
  return earlier ? `The earlier run had ${earlier}. Choose it again.` : "none yet";
}
