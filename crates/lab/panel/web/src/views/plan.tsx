// Plan: channels, requirements, and at once what they give.
import { useEffect, useMemo, useState } from "preact/hooks";
import { api } from "../api";
import { latestOnly } from "../latest";
import { CopyButton, ErrorLine, ViewHeading } from "../parts/basics";
import { saveFile } from "../save";
import { ChannelTable } from "../plan/channel-table";
import { FrontChart } from "../plan/front";
import { LeaveOneOutTable, PlanProperties, ScheduleTable } from "../plan/results";
import { SurfaceMap } from "../plan/surface";
import { type FrontPoint, PROPERTIES, type PlanChannel, type PlanDocument, type Property, type Surface } from "../plan/types";
import { BoundFields, FIRST_BOUNDS, boundsOf } from "../plan/bounds";

const EXAMPLE: PlanChannel[] = [
  { name: "fibre", risk: 0.1, loss: 0.01, delay_ms: 2.5, rate: 100 },
  { name: "dsl", risk: 0.3, loss: 0.005, delay_ms: 9, rate: 40 },
  { name: "lte", risk: 0.2, loss: 0.02, delay_ms: 30, rate: 20 },
];

/** The values on each axis of the surface. */
const STEPS = 41;

export function PlanView() {
  const [channels, setChannels] = useState(EXAMPLE);
  const [settings, setSettings] = useState(FIRST_BOUNDS);
  const bounds = useMemo(() => boundsOf(settings, channels.length), [settings, channels.length]);
  const request = useMemo(() => ({ channels, ...bounds }), [channels, bounds]);
  const plan = useLatest<PlanDocument>(api.plan, request);
  const [property, setProperty] = useState<Property>("risk");
  const surface = useLatest<Surface>(api.surface, useMemo(() => ({ channels, value: property, steps: STEPS }), [channels, property]));
  const [axes, setAxes] = useState<[Property, Property]>(["risk", "rate"]);
  const front = useLatest<FrontPoint[]>(api.front, useMemo(() => ({ channels, x: axes[0], y: axes[1] }), [channels, axes]));
  const document = plan.result;
  const choose = (kappa: number, mu: number) => setSettings((before) => ({ ...before, way: "means", kappa, mu }));
  // These do not change while a person drags kappa and mu, so they are not rendered again.
  const channelTable = useMemo(() => <ChannelTable channels={channels} onChange={setChannels} />, [channels]);
  const frontChart = useMemo(
    () => front.result && front.result.length > 0 && <FrontChart key={axes.join()} points={front.result} x={axes[0]} y={axes[1]} />,
    [front.result],
  );
  return (
    <>
      <ViewHeading about="Each symbol is sent as m shares over m channels, and any k of them restore it. Kappa and mu are the means of k and m.">Plan</ViewHeading>
      <div class="plan">
        <section class="card plan-channels" aria-labelledby="channels-title">
          <h2 id="channels-title">Channels</h2>
          {channelTable}
        </section>
        <section class="card plan-bounds" aria-labelledby="bounds-title">
          <h2 id="bounds-title">Requirements</h2>
          <BoundFields settings={settings} channels={channels.length} onChange={setSettings} />
        </section>
      </div>
      <section class="card" aria-labelledby="result-title">
        <h2 id="result-title">Best schedule</h2>
        <ErrorLine text={plan.error} />
        {document && <PlanProperties plan={document} isOld={plan.error !== null} />}
        {document && !plan.error && <ScheduleTable plan={document} />}
      </section>
      {document && !plan.error && (
        <div class="plan">
          <section class="card" aria-labelledby="without-title">
            <h2 id="without-title">Without one channel</h2>
            <LeaveOneOutTable plan={document} />
          </section>
          {document.toml && <Configuration toml={document.toml} />}
        </div>
      )}
      <div class="plan even">
        <section class="card" aria-labelledby="surface-title">
          <div class="card-heading">
            <h2 id="surface-title">Over kappa and mu</h2>
            <PropertySelect label="Property" value={property} onChange={setProperty} />
          </div>
          <ErrorLine text={surface.error} />
          {surface.result && channels.length > 1 && <SurfaceMap surface={surface.result} property={property} kappa={document?.kappa} mu={document?.mu} onChoose={choose} />}
        </section>
        <section class="card" aria-labelledby="front-title">
          <div class="card-heading">
            <h2 id="front-title">Pareto front</h2>
            <PropertySelect label="Horizontal" value={axes[0]} onChange={(x) => setAxes([x, x === axes[1] ? axes[0] : axes[1]])} />
            <PropertySelect label="Vertical" value={axes[1]} onChange={(y) => setAxes([y === axes[0] ? axes[1] : axes[0], y])} />
          </div>
          <ErrorLine text={front.error} />
          {frontChart}
        </section>
      </div>
    </>
  );
}

function PropertySelect({ label, value, onChange }: { label: string; value: Property; onChange: (value: Property) => void }) {
  return (
    <label class="inline">
      {label}
      <select value={value} onChange={(event) => onChange(event.currentTarget.value as Property)}>
        {PROPERTIES.map((it) => <option key={it.name} value={it.name}>{it.label.toLowerCase()}</option>)}
      </select>
    </label>
  );
}

function Configuration({ toml }: { toml: string }) {
  return (
    <section class="card" aria-labelledby="toml-title">
      <div class="card-heading">
        <h2 id="toml-title">Configuration of a tunnel</h2>
        <CopyButton text={() => toml}>Copy</CopyButton>
        <button type="button" onClick={() => saveFile("tunnel.toml", "application/toml", toml)}>Download</button>
      </div>
      <pre tabIndex={0} role="region" aria-label="Lines of the configuration"><code>{toml}</code></pre>
    </section>
  );
}

/** Asks again whenever the request changes; keeps the last result when one is refused. */
function useLatest<R>(ask: (body: unknown, signal: AbortSignal) => Promise<R>, request: unknown): { result: R | null; error: string | null } {
  const [state, setState] = useState<{ result: R | null; error: string | null }>({ result: null, error: null });
  const asker = useMemo(
    () =>
      latestOnly<unknown, R>(
        ask,
        (result) => setState({ result, error: null }),
        (error) => setState((before) => ({ ...before, error: error.message })),
      ),
    [],
  );
  useEffect(() => asker.ask(request), [request]);
  useEffect(() => asker.end, []);
  return state;
}
