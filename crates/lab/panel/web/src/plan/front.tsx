// The Pareto front of two properties: no schedule is better in both.
import { LineChart } from "../charts/line-chart";
import { isSpread } from "../series";
import { type FrontPoint, PROPERTIES, type Property } from "./types";
import { propertyText } from "./words";

interface Props {
  points: FrontPoint[];
  x: Property;
  y: Property;
}

export function FrontChart({ points, x, y }: Props) {
  const ordered = [...points].sort((a, b) => a.x - b.x);
  const label = (property: Property) => {
    const { label, unit } = PROPERTIES.find((it) => it.name === property)!;
    return unit ? `${label.toLowerCase()} (${unit})` : label.toLowerCase();
  };
  const scale = (values: number[]) => (isSpread(values, 100) ? "log" : "linear");
  return (
    <>
      <LineChart
        description={`The best ${y} for each ${x}; the table below has the values`}
        xs={ordered.map((point) => point.x)}
        lines={[{ label: "best possible", ys: ordered.map((point) => point.y) }]}
        xLabel={label(x)}
        yLabel={label(y)}
        xScale={scale(ordered.map((point) => point.x))}
        yScale={scale(ordered.map((point) => point.y))}
        hasMarks={ordered.length <= 60}
        valueAt={(_, index) => {
          const point = ordered[index];
          return point ? `${x} ${propertyText(x, point.x)}, ${y} ${propertyText(y, point.y)}` : null;
        }}
      />
      <details>
        <summary>The same as a table</summary>
        <div class="scroll" tabIndex={0} role="region" aria-label="Table of the Pareto front">
          <table>
            <thead><tr><th scope="col" class="number">{x}</th><th scope="col" class="number">{y}</th></tr></thead>
            <tbody>
              {ordered.map((point, i) => (
                <tr key={i}><td class="number">{propertyText(x, point.x)}</td><td class="number">{propertyText(y, point.y)}</td></tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </>
  );
}
