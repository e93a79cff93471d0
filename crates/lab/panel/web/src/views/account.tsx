// The account: what it uses of its quotas, its password, and signing out.
import { useState } from "preact/hooks";
import { api } from "../api";
import { ErrorLine, ViewHeading } from "../parts/basics";
import { useLoaded } from "../parts/load";
import { PasswordField } from "../parts/password-field";

export function AccountView({ onLeft }: { onLeft: () => void }) {
  const { data, error } = useLoaded(api.session, []);
  const [failure, setFailure] = useState<string | null>(null);
  const leave = () => api.logout().then(onLeft, (reason: Error) => setFailure(reason.message));
  const usage = data?.usage;
  return (
    <>
      <ViewHeading about="Your runs are yours alone, unless you share one by a link on its page.">Account {data?.name}</ViewHeading>
      <ErrorLine text={failure ?? error} />
      {usage && (
        <section class="card quotas" aria-labelledby="quotas">
          <h2 id="quotas">Quotas</h2>
          <Quota label="Runs that wait or run" used={usage.unfinished} quota={usage.max_unfinished} unit="" />
          <Quota label="Held on the disk" used={mib(usage.bytes)} quota={mib(usage.max_bytes)} unit=" MiB" />
          <Quota label="Run today (UTC)" used={Math.floor(usage.seconds_today / 60)} quota={Math.floor(usage.max_seconds_a_day / 60)} unit=" minutes" />
          <p class="hint">A run that waits or runs counts with what it may hold. Delete runs in History to make room.</p>
        </section>
      )}
      <ChangePassword />
      <p><button type="button" onClick={leave}>Sign out</button></p>
    </>
  );
}

const mib = (bytes: number) => Math.ceil(bytes / 2 ** 20);

function Quota({ label, used, quota, unit }: { label: string; used: number; quota: number; unit: string }) {
  return (
    <div>
      {label}: {used} of {quota}{unit}
      <progress value={used} max={quota || 1} aria-label={label} />
    </div>
  );
}

function ChangePassword() {
  const [old, setOld] = useState("");
  const [changed, setChanged] = useState("");
  const [error, setError] = useState<string | null>(null);
  const [said, setSaid] = useState("");
  const change = async (event: Event) => {
    event.preventDefault();
    setSaid("");
    try {
      await api.changePassword(old, changed);
      setOld("");
      setChanged("");
      setError(null);
      setSaid("The password is changed. Other browsers are signed out.");
    } catch (failure) {
      setError((failure as Error).message);
    }
  };
  return (
    <section class="card" aria-labelledby="password">
      <h2 id="password">Password</h2>
      <form class="entry" onSubmit={change}>
        <PasswordField label="Old password" value={old} onInput={setOld} isNew={false} />
        <PasswordField label="New password" value={changed} onInput={setChanged} isNew />
        <ErrorLine text={error} />
        <button type="submit">Change</button>
        <span class="hint" role="status">{said}</span>
      </form>
    </section>
  );
}
