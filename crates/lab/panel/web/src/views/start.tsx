// Run and Sweep: choose, see how long it will take, and start.
import { useEffect, useMemo, useState } from "preact/hooks";
import { ApiError, api } from "../api";
import { duration, plural, quantity } from "../format";
import { comparesSeveral, countPoints, defaultValues, labelOf } from "../knobs";
import { latestOnly } from "../latest";
import { CopyButton, ErrorLine, ViewHeading } from "../parts/basics";
import { KnobGroups } from "../parts/knob-groups";
import { useLoaded } from "../parts/load";
import { goTo } from "../router";
import { saveFile } from "../save";
import type { KnobValues, NetworkPreset, RunPrediction, RunRequest, Template } from "../types";
import { ExperimentList } from "./experiments";

interface Offer {
  templates: Template[];
  networks: NetworkPreset[];
  /** The request of the run that is to be changed. */
  earlier: RunRequest | null;
}

async function loadOffer(from: string | null): Promise<Offer> {
  const [templates, networks, run] = await Promise.all([api.templates(), api.networks(), from ? api.run(from) : null]);
  return { templates, networks, earlier: run?.request ?? null };
}

/** `from` is an earlier run whose settings are taken. */
export function StartView({ isSweep, from }: { isSweep: boolean; from: string | null }) {
  const offer = useLoaded(() => loadOffer(from), [from]);
  return (
    <>
      {isSweep ? (
        <ViewHeading about="Give any setting several values. Every combination is measured, and the chart fills in meanwhile.">Sweep</ViewHeading>
      ) : (
        <ViewHeading about="Choose an application, a transport and a network. Both ends run on this host, over an emulated network.">Run</ViewHeading>
      )}
      <ErrorLine text={offer.error} />
      {offer.data && <StartForm key={`${isSweep}${from}`} offer={offer.data} isSweep={isSweep} />}
      {isSweep && <ExperimentList />}
    </>
  );
}

function StartForm({ offer, isSweep }: { offer: Offer; isSweep: boolean }) {
  const { templates, networks, earlier } = offer;
  const taken = earlier && "template" in earlier ? earlier : null;
  const [template, setTemplate] = useState(() => templates.find((it) => it.name === taken?.template) ?? templates[0]!);
  const [values, setValues] = useState<KnobValues>(() => ({ ...defaultValues(template, isSweep), ...taken?.values }));
  const [repetitions, setRepetitions] = useState(taken?.repetitions ?? 1);
  const [fault, setFault] = useState<ApiError | null>(null);
  const [isStarting, setStarting] = useState(false);
  const request = useMemo<RunRequest>(() => ({ template: template.name, values, repetitions }), [template, values, repetitions]);
  const prediction = usePrediction(request);

  const choose = (chosen: Template) => {
    setTemplate(chosen);
    setValues(defaultValues(chosen, isSweep));
  };
  const start = async () => {
    setStarting(true);
    setFault(null);
    try {
      goTo(`run/${(await api.start(request)).id}`);
    } catch (error) {
      setFault(error as ApiError);
      setStarting(false);
    }
  };
  const trials = countPoints(values) * repetitions;
  const isOfKnob = template.knobs.some((knob) => knob.name === fault?.field);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        void start();
      }}
    >
      <KnobGroups
        {...{ templates, template, networks, values, isSweep }}
        onTemplate={choose}
        onChange={setValues}
        refused={fault?.field && isOfKnob ? { field: fault.field, error: fault.message } : null}
      />
      <div class="start-bar">
        <div class="expected" aria-live="polite">
          <p>
            <b>{plural(trials, "trial")}</b>
            {prediction?.seconds != null && <>, about <b>{duration(prediction.seconds)}</b> in all</>}
          </p>
          {!isSweep && prediction && <Predictions prediction={prediction} template={template} />}
        </div>
        <label class="repetitions">
          Repetitions
          <input
            type="number"
            min={1}
            max={20}
            value={repetitions}
            onChange={(event) => setRepetitions(Math.min(20, Math.max(1, Math.round(Number(event.currentTarget.value)) || 1)))}
          />
        </label>
        {isSweep && (
          <>
            <CopyButton text={() => api.toml(request)}>Copy .toml</CopyButton>
            <button
              type="button"
              onClick={() => api.toml(request).then((toml) => saveFile(`${template.name}.toml`, "application/toml", toml), setFault)}
            >
              Download .toml
            </button>
          </>
        )}
        <button type="submit" class="primary" disabled={isStarting}>{isStarting ? "Starting" : "Run"}</button>
      </div>
      <ErrorLine text={fault && !isOfKnob ? fault.message : null} />
    </form>
  );
}

/** The predicted time of each point, if there are few. */
function Predictions({ prediction, template }: { prediction: RunPrediction; template: Template }) {
  const { predictions } = prediction;
  if (predictions.length === 0 || predictions.length > 8) return null;
  const knob = template.knobs.find(comparesSeveral);
  return (
    <p class="hint">
      Predicted:{" "}
      {predictions.map(({ point, time_ms }, i) => (
        <span key={i}>
          {i > 0 && ", "}
          {knob && point[knob.name] !== undefined && `${labelOf(knob, point[knob.name]!)} `}
          <b>{quantity(time_ms, "ms")}</b>
        </span>
      ))}
    </p>
  );
}

/** Asks for the prediction while a person changes the request. Without one, nothing is shown. */
function usePrediction(request: RunRequest): RunPrediction | null {
  const [prediction, setPrediction] = useState<RunPrediction | null>(null);
  const asker = useMemo(() => latestOnly((body: RunRequest) => api.predict(body), setPrediction, () => setPrediction(null)), []);
  useEffect(() => asker.ask(request), [request]);
  useEffect(() => asker.end, []);
  return prediction;
}
