// Channels as ribbons: the width is the rate that is achieved, the outline the rate predicted.
import { percent, short } from "../format";
import type { LiveChannel } from "./types";

const WIDTH = 400;
const HEIGHT = 44;
/** The width of the ribbon of the fastest channel. */
const THICKEST = 34;

export function ChannelRibbons({ name, channels }: { name: string; channels: LiveChannel[] }) {
  const most = Math.max(1e-9, ...channels.flatMap((it) => [it.achieved_mbit, it.predicted_mbit ?? 0]));
  const hasPrediction = channels.some((it) => it.predicted_mbit !== undefined);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={`Channels of ${name}`}>
      <table class="ribbons">
        <thead>
          <tr>
            <th scope="col">channel</th>
            <th scope="col">state</th>
            <th scope="col" class="ribbon-head"><span class="hidden">rate as a ribbon</span></th>
            <th scope="col" class="number">Mbit/s</th>
            {hasPrediction && <th scope="col" class="number">predicted</th>}
            <th scope="col" class="number">loss</th>
          </tr>
        </thead>
        <tbody>
          {channels.map((channel) => (
            <tr key={channel.name}>
              <th scope="row">{channel.name}</th>
              <td><ChannelState channel={channel} /></td>
              <td class="ribbon"><Ribbon channel={channel} most={most} /></td>
              <td class="number">{rateText(channel.achieved_mbit)}</td>
              {hasPrediction && <td class="number">{!channel.predicted_mbit ? "–" : rateText(channel.predicted_mbit)}</td>}
              <td class="number">{channel.loss === null || !isUp(channel) ? "–" : percent(Number(channel.loss.toPrecision(2)))}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** With a constant number of digits, so that the numbers do not jump each second. */
const rateText = (mbit: number) => (mbit >= 100 ? short(Math.round(mbit)) : mbit.toFixed(1));

const isUp = (channel: LiveChannel) => channel.state === "up" && !channel.quarantined;

function ChannelState({ channel }: { channel: LiveChannel }) {
  if (isUp(channel)) return <span class="ok">up</span>;
  return <b class="wrong">{channel.quarantined ? "quarantine" : channel.state}</b>;
}

function Ribbon({ channel, most }: { channel: LiveChannel; most: number }) {
  const edges = (mbit: number) => {
    const half = ((mbit / most) * THICKEST) / 2;
    return [HEIGHT / 2 - half, HEIGHT / 2 + half] as const;
  };
  const [top, bottom] = edges(channel.achieved_mbit);
  const predicted = channel.predicted_mbit ? edges(channel.predicted_mbit) : [];
  return (
    <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
      {isUp(channel) ? (
        <path d={`M0 ${top}H${WIDTH}V${bottom}H0Z`} class="achieved" />
      ) : (
        <path d={`M0 ${HEIGHT / 2}H${WIDTH}`} class="not-up" />
      )}
      <path d={predicted.map((edge) => `M0 ${edge}H${WIDTH}`).join("")} class="predicted" />
    </svg>
  );
}
