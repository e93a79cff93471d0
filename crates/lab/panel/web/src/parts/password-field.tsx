interface Props {
  label: string;
  value: string;
  onInput: (value: string) => void;
  isNew: boolean;
}

/** The server's minimum. */
const MIN_LENGTH = 12;

export function PasswordField({ label, value, onInput, isNew }: Props) {
  const id = `password-${isNew ? "new" : "old"}`;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        id={id}
        type="password"
        autocomplete={isNew ? "new-password" : "current-password"}
        required
        {...(isNew && { minLength: MIN_LENGTH, "aria-describedby": `${id}-hint` })}
        value={value}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
      {isNew && <p class="hint" id={`${id}-hint`}>At least {MIN_LENGTH} characters, for example four random words.</p>}
    </div>
  );
}
