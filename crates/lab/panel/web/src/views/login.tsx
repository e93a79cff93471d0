// Signing in to an account, and accepting an invitation to one.
import { useState } from "preact/hooks";
import { api } from "../api";
import { ErrorLine } from "../parts/basics";
import { PasswordField } from "../parts/password-field";
import { goTo, type Route } from "../router";

export function LoginForm({ onEntered }: { onEntered: () => Promise<unknown> }) {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [error, setError] = useState<string | null>(null);
  const enter = async (event: Event) => {
    event.preventDefault();
    try {
      await api.login(name, password);
      await onEntered();
    } catch (failure) {
      setError((failure as Error).message);
    }
  };
  return (
    <main class="unknown">
      <form class="entry" onSubmit={enter}>
        <h1>Sign in</h1>
        <div class="field">
          <label for="name">Name</label>
          <input id="name" type="text" autocomplete="username" autocapitalize="none" required value={name} onInput={(event) => setName(event.currentTarget.value)} />
        </div>
        <PasswordField label="Password" value={password} onInput={setPassword} isNew={false} />
        <ErrorLine text={error} />
        <button type="submit" class="primary small">Sign in</button>
        <p class="hint">Without an account, or without its password, ask the administrator for an invitation.</p>
      </form>
    </main>
  );
}

/** The address is #/invitation/NAME/SECRET. */
export function InvitationForm({ route, onEntered }: { route: Route; onEntered: () => Promise<unknown> }) {
  const [name = "", secret = ""] = route.rest.split("/");
  const [password, setPassword] = useState("");
  const [error, setError] = useState<string | null>(null);
  const accept = async (event: Event) => {
    event.preventDefault();
    try {
      await api.acceptInvitation(secret, password);
      // The secret is used up, and leaves the address.
      goTo("run");
      await onEntered();
    } catch (failure) {
      setError((failure as Error).message);
    }
  };
  return (
    <main class="unknown">
      <form class="entry" onSubmit={accept}>
        <h1>Choose a password</h1>
        <p>You are invited as <strong>{name}</strong>. This invitation can be accepted once.</p>
        <input type="text" class="hidden" name="username" autocomplete="username" readOnly tabIndex={-1} aria-hidden="true" value={name} />
        <PasswordField label="New password" value={password} onInput={setPassword} isNew />
        <ErrorLine text={error} />
        <button type="submit" class="primary small">Accept</button>
      </form>
    </main>
  );
}
