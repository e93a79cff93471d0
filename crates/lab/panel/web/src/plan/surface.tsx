// A property over kappa and mu, as a heat map and as a table.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { short } from "../format";
import { colour, useThemeVersion } from "../theme";
import type { Property, Surface } from "./types";
import { propertyText } from "./words";

interface Props {
  surface: Surface;
  property: Property;
  /** The present plan. */
  kappa: number | undefined;
  mu: number | undefined;
  onChoose: (kappa: number, mu: number) => void;
}

/** The space for the axes, in CSS pixels. */
const LEFT = 40;
const TOP = 8;
const BOTTOM = 34;
const HEIGHT = 320;

export function SurfaceMap({ surface, property, kappa, mu, onChoose }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [at, setAt] = useState<{ kappa: number; mu: number } | null>(null);
  const theme = useThemeVersion();
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry!.contentRect.width)));
    observer.observe(canvas.current!.parentElement!);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    if (width > 0) draw(canvas.current!, width, surface);
  }, [surface, width, theme]);

  const placeOf = (event: MouseEvent) => {
    const box = canvas.current!.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left - LEFT) / (box.width - LEFT)) * surface.kappa.length);
    const row = Math.floor(((HEIGHT - BOTTOM - (event.clientY - box.top)) / (HEIGHT - BOTTOM - TOP)) * surface.mu.length);
    const isInside = surface.values[row]?.[column] != null;
    return isInside ? { kappa: surface.kappa[column]!, mu: surface.mu[row]!, value: surface.values[row]![column]! } : null;
  };
  const [low, high] = useMemo(() => rangeOf(surface), [surface]);
  // It does not change while a person drags kappa and mu.
  const table = useMemo(() => <SurfaceTable surface={surface} property={property} />, [surface]);
  const shown = at && surface.values[surface.mu.indexOf(at.mu)]?.[surface.kappa.indexOf(at.kappa)];
  return (
    <figure class="chart">
      <div class="surface">
        <canvas
          ref={canvas}
          role="img"
          aria-label={`${property} over kappa and mu, from ${propertyText(property, low)} to ${propertyText(property, high)}; the table below has the values`}
          onMouseMove={(event) => setAt(placeOf(event))}
          onMouseLeave={() => setAt(null)}
          onClick={(event) => {
            const place = placeOf(event);
            if (place) onChoose(place.kappa, place.mu);
          }}
        />
        {kappa !== undefined && mu !== undefined && <span class="present" style={ringAt(surface, width, kappa, mu)} />}
      </div>
      <div class="heat-legend">
        <span>{propertyText(property, low)}</span>
        <span class="heat-scale" aria-hidden="true" />
        <span>{propertyText(property, high)}</span>
      </div>
      <p class="hint" aria-hidden="true">
        {at && shown != null ? `kappa ${short(at.kappa)}, mu ${short(at.mu)}: ${propertyText(property, shown)}` : "The ring is the present plan. Click to choose kappa and mu."}
      </p>
      {table}
    </figure>
  );
}

function rangeOf(surface: Surface): [number, number] {
  const values = surface.values.flat().filter((value) => value !== null);
  return [Math.min(...values), Math.max(...values)];
}

function draw(canvas: HTMLCanvasElement, width: number, surface: Surface): void {
  const ratio = devicePixelRatio;
  canvas.width = width * ratio;
  canvas.height = HEIGHT * ratio;
  const context = canvas.getContext("2d")!;
  context.scale(ratio, ratio);
  const [columns, rows] = [surface.kappa.length, surface.mu.length];
  const [cellWidth, cellHeight] = [(width - LEFT) / columns, (HEIGHT - BOTTOM - TOP) / rows];
  const [low, high] = rangeOf(surface);
  const [from, to] = [rgb(colour("heat-low")), rgb(colour("heat-high"))];
  // Where values are of several orders of magnitude, small differences among the small ones count.
  const scale = low > 0 && high / low > 100 ? Math.log : (value: number) => value;
  surface.values.forEach((row, r) =>
    row.forEach((value, c) => {
      if (value === null) return;
      const part = high > low ? (scale(value) - scale(low)) / (scale(high) - scale(low)) : 0;
      context.fillStyle = `rgb(${from.map((it, i) => Math.round(it + (to[i]! - it) * part)).join(" ")})`;
      // Half a pixel more, so that no lines show between the cells.
      context.fillRect(LEFT + c * cellWidth, HEIGHT - BOTTOM - (r + 1) * cellHeight, cellWidth + 0.5, cellHeight + 0.5);
    }),
  );
  drawAxes(context, width, surface);
}

/** The part of an axis at which a value is: in the middle of its cell. */
function placeOn(axis: number[], value: number): number {
  const part = (value - axis[0]!) / (axis.at(-1)! - axis[0]! || 1);
  return (part * (axis.length - 1) + 0.5) / axis.length;
}

/** The place of the ring, in CSS pixels. */
function ringAt(surface: Surface, width: number, kappa: number, mu: number): { left: string; top: string } {
  const left = LEFT + placeOn(surface.kappa, kappa) * (width - LEFT);
  const top = TOP + (HEIGHT - BOTTOM - TOP) * (1 - placeOn(surface.mu, mu));
  return { left: `${left}px`, top: `${top}px` };
}

function drawAxes(context: CanvasRenderingContext2D, width: number, surface: Surface): void {
  context.fillStyle = colour("muted");
  context.font = "12px system-ui, sans-serif";
  const whole = (axis: number[]) => Array.from({ length: Math.floor(axis.at(-1)!) }, (_, i) => i + 1);
  context.textAlign = "center";
  for (const value of whole(surface.kappa)) context.fillText(String(value), LEFT + placeOn(surface.kappa, value) * (width - LEFT), HEIGHT - BOTTOM + 15);
  context.fillText("kappa", LEFT + (width - LEFT) / 2, HEIGHT - 4);
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const value of whole(surface.mu)) context.fillText(String(value), LEFT - 8, TOP + (HEIGHT - BOTTOM - TOP) * (1 - placeOn(surface.mu, value)));
  context.save();
  context.translate(10, (HEIGHT - BOTTOM) / 2);
  context.rotate(-Math.PI / 2);
  context.textAlign = "center";
  context.fillText("mu", 0, 0);
  context.restore();
}

/** The parts of a colour such as "rgb(10, 74, 96)". */
function rgb(colour: string): [number, number, number] {
  const [red = 0, green = 0, blue = 0] = (colour.match(/\d+/g) ?? []).map(Number);
  return [red, green, blue];
}

/** Every few values, so that a person can read them. */
function SurfaceTable({ surface, property }: { surface: Surface; property: Property }) {
  const every = Math.max(1, Math.round((surface.kappa.length - 1) / 6));
  const places = surface.kappa.flatMap((_, i) => (i % every === 0 ? [i] : []));
  return (
    <details>
      <summary>The same as a table</summary>
      <div class="scroll" tabIndex={0} role="region" aria-label={`Table of the ${property} over kappa and mu`}>
        <table>
          <thead>
            <tr><th scope="col">mu</th>{places.map((c) => <th key={c} scope="col" class="number">kappa {short(surface.kappa[c]!)}</th>)}</tr>
          </thead>
          <tbody>
            {places.map((r) => (
              <tr key={r}>
                <th scope="row">{short(surface.mu[r]!)}</th>
                {places.map((c) => {
                  const value = surface.values[r]?.[c];
                  return <td key={c} class="number">{value == null ? "" : propertyText(property, value)}</td>;
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}
