// A link by which others can open a run, and change nothing.
import { useState } from "preact/hooks";
import { api } from "../api";
import { copyText } from "../save";

interface Props {
  id: string;
  /** Whether there is a link already. A new one makes it invalid. */
  isShared: boolean;
}

export function RunLink({ id, isShared: wasShared }: Props) {
  const [isShared, setShared] = useState(wasShared);
  const [url, setUrl] = useState<string | null>(null);
  const [said, setSaid] = useState("");
  const share = async () => {
    try {
      const made = (await api.link(id)).url;
      setShared(true);
      setUrl(made);
      const copied = (await copyText(made)) ? "The link is copied." : "Copy the link from the field.";
      setSaid(isShared ? `${copied} The one before it is not valid any more.` : copied);
    } catch (error) {
      setSaid((error as Error).message);
    }
  };
  const withdraw = async () => {
    try {
      await api.withdrawLink(id);
      setShared(false);
      setUrl(null);
      setSaid("The link is withdrawn.");
    } catch (error) {
      setSaid((error as Error).message);
    }
  };
  return (
    <>
      <button type="button" onClick={share}>{isShared ? "Copy a new link for others" : "Copy a link for others"}</button>
      {url !== null && (
        <input type="text" class="run-link" readOnly aria-label="Link for others" value={url} onFocus={(event) => event.currentTarget.select()} />
      )}
      {isShared && <button type="button" onClick={withdraw}>Withdraw link</button>}
      <span class="hint" role="status">{said}</span>
    </>
  );
}
