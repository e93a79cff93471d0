// What both parties do, as bars over time.
import { quantity } from "../format";
import type { PhaseBar } from "../progress";

const ROW = 34;
const LEFT = 86;
const WIDTH = 720;
const NAMES = ["connect", "setup", "inputs", "gates", "output"];

export function PhaseBars({ bars }: { bars: PhaseBar[] }) {
  const parties = [...new Set(bars.map((bar) => bar.party))];
  const end = Math.max(...bars.map((bar) => bar.start_s + bar.time_s));
  const scale = (WIDTH - LEFT) / (end || 1);
  return (
    <figure class="chart">
      <svg viewBox={`0 0 ${WIDTH} ${parties.length * ROW}`} class="phases" role="img" aria-label="The phases of each party over time; the table below lists them">
        {parties.map((party, row) => (
          <g key={party} transform={`translate(0 ${row * ROW})`}>
            <text x="0" y={ROW / 2} dominant-baseline="central">{party}</text>
            {bars.filter((bar) => bar.party === party).map((bar) => {
              const width = Math.max(1.5, bar.time_s * scale);
              return (
                <g key={bar.name} transform={`translate(${LEFT + bar.start_s * scale} 4)`}>
                  <title>{`${bar.name}: ${quantity(bar.time_s * 1000, "ms")}`}</title>
                  <rect width={width} height={ROW - 8} rx="3" class={`phase phase-${NAMES.indexOf(bar.name) + 1}`} />
                  {width > 8 * bar.name.length && <text x="7" y={ROW / 2 - 4} dominant-baseline="central" class="phase-name">{bar.name}</text>}
                </g>
              );
            })}
          </g>
        ))}
      </svg>
      <details>
        <summary>Phases as a table</summary>
        <div class="scroll" tabIndex={0} role="region" aria-label="Phases">
          <table>
            <thead><tr><th scope="col">party</th><th scope="col">phase</th><th scope="col" class="number">begins</th><th scope="col" class="number">takes</th></tr></thead>
            <tbody>
              {bars.map((bar) => (
                <tr key={bar.party + bar.name}>
                  <td>{bar.party}</td>
                  <td>{bar.name}</td>
                  <td class="number">{quantity(bar.start_s * 1000, "ms")}</td>
                  <td class="number">{quantity(bar.time_s * 1000, "ms")}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </figure>
  );
}
