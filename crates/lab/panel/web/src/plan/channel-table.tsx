// The channels of a plan, to edit.
import { useEffect, useState } from "preact/hooks";
import { api } from "../api";
import type { LiveDocument } from "../live/types";
import type { PlanChannel } from "./types";

interface Props {
  channels: PlanChannel[];
  onChange: (channels: PlanChannel[]) => void;
}

const COLUMNS = [
  { key: "risk", label: "risk", hint: "probability", least: 0, most: 1 },
  { key: "loss", label: "loss", hint: "probability", least: 0, most: 1 },
  { key: "delay_ms", label: "delay", hint: "ms, one way", least: 0, most: 1e6 },
  { key: "rate", label: "rate", hint: "Mbit/s", least: 1e-6, most: 1e9 },
] as const;

/** The largest number of channels for which a plan is quick. */
const MAX_CHANNELS = 8;

const MORE: PlanChannel[] = [
  { name: "cable", risk: 0.25, loss: 0.01, delay_ms: 14, rate: 50 },
  { name: "satellite", risk: 0.4, loss: 0.03, delay_ms: 270, rate: 30 },
];

export function ChannelTable({ channels, onChange }: Props) {
  const set = (index: number, change: Partial<PlanChannel>) =>
    onChange(channels.map((channel, i) => (i === index ? { ...channel, ...change } : channel)));
  const add = () => {
    const taken = new Set(channels.map((channel) => channel.name));
    const example = MORE.find((it) => !taken.has(it.name)) ?? MORE[0]!;
    let name = example.name;
    for (let i = 2; taken.has(name); i += 1) name = `${example.name}${i}`;
    onChange([...channels, { ...example, name }]);
  };
  return (
    <>
      <div class="scroll" tabIndex={0} role="region" aria-label="Table of channels">
        <table class="channels">
          <thead>
            <tr>
              <th scope="col">name</th>
              {COLUMNS.map(({ key, label, hint }) => <th key={key} scope="col">{label} <span class="hint">{hint}</span></th>)}
              <th scope="col"><span class="hidden">actions</span></th>
            </tr>
          </thead>
          <tbody>
            {channels.map((channel, index) => (
              <tr key={index}>
                <td><input type="text" class="name" aria-label={`Name of channel ${index + 1}`} value={channel.name} onInput={(event) => set(index, { name: event.currentTarget.value })} /></td>
                {COLUMNS.map(({ key, label, least, most }) => (
                  <td key={key}>
                    <NumberCell label={`${label} of ${channel.name}`} value={channel[key]} least={least} most={most} onChange={(value) => set(index, { [key]: value })} />
                  </td>
                ))}
                <td><button type="button" class="quiet" aria-label={`Remove ${channel.name}`} disabled={channels.length === 1} onClick={() => onChange(channels.filter((_, i) => i !== index))}>Remove</button></td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <div class="buttons">
        <button type="button" disabled={channels.length >= MAX_CHANNELS} onClick={add}>Add a channel</button>
        <TunnelImport onChange={onChange} />
      </div>
    </>
  );
}

interface CellProps {
  label: string;
  value: number;
  least: number;
  most: number;
  onChange: (value: number) => void;
}

function NumberCell({ label, value, least, most, onChange }: CellProps) {
  const [typed, setTyped] = useState(String(value));
  useEffect(() => {
    // Do not replace "0." while a person types it.
    setTyped((text) => (Number(text) === value ? text : String(value)));
  }, [value]);
  const number = Number(typed.replace(",", "."));
  const isValid = typed.trim() !== "" && number >= least && number <= most;
  const type = (text: string) => {
    setTyped(text);
    const entered = Number(text.replace(",", "."));
    if (text.trim() !== "" && entered >= least && entered <= most) onChange(entered);
  };
  return <input type="text" inputMode="decimal" aria-label={label} aria-invalid={!isValid} value={typed} onInput={(event) => type(event.currentTarget.value)} />;
}

/** Takes the channels of a tunnel that runs on this host. */
function TunnelImport({ onChange }: { onChange: (channels: PlanChannel[]) => void }) {
  const [said, setSaid] = useState<string | null>(null);
  const take = async () => {
    const tunnels = await api.live<LiveDocument>().then(({ processes }) => processes.filter((it) => it.kind === "tunnel"), () => []);
    const tunnel = tunnels[0];
    const measured = tunnel?.status.channels as { risk?: number; loss_out?: number; delay_ms?: number; rate_mbit?: number }[] | undefined;
    if (!tunnel || !measured) return setSaid("No tunnel runs on this host.");
    const channels = measured.map((it, i) => ({
      name: tunnel.channels?.[i]?.name ?? `channel${i + 1}`,
      risk: it.risk ?? 0,
      loss: it.loss_out ?? 0,
      delay_ms: it.delay_ms ?? 0,
      rate: it.rate_mbit ?? 1,
    }));
    onChange(channels);
    setSaid(`These are the channels of ${tunnel.name}.`);
  };
  return (
    <>
      <button type="button" onClick={take}>Take those of a running tunnel</button>
      <span class="hint" role="status">{said}</span>
    </>
  );
}
