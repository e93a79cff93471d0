// Run and Sweep: choose, see how long it will take, and start.
import { useEffect, useMemo, useState } from "preact/hooks";
import { ApiError, api } from "../api";
import { type FileChoices, MAX_SEED, earlierValues, initialFiles, missingFile, parseSeed, requestOf, withoutArchives } from "../files";
import { count, duration, plural } from "../format";
import { countPoints, defaultValues, isFile } from "../knobs";
import { latestOnly } from "../latest";
import { ApplicationList } from "../parts/application-list";
import { CopyButton, ErrorLine, ViewHeading } from "../parts/basics";
import { KnobGroups } from "../parts/knob-groups";
import { useLoaded } from "../parts/load";
import { predictionText } from "../predictions";
import { goTo, replaceRoute } from "../router";
import { saveFile } from "../save";
import type { KnobValues, NetworkPreset, RequestValue, RunPrediction, RunRequest, Template } from "../types";
import { ExperimentList } from "./experiments";

type TemplateRequest = Extract<RunRequest, { template: string }>;

interface Offer {
  templates: Template[];
  networks: NetworkPreset[];
  /** The request of the run that is to be changed. */
  earlier: TemplateRequest | null;
}

async function loadOffer(from: string | null): Promise<Offer> {
  const [templates, networks, run] = await Promise.all([api.templates(), api.networks(), from ? api.run(from) : null]);
  const request = run?.request;
  return { templates, networks, earlier: request && "template" in request ? request : null };
}

interface Props {
  isSweep: boolean;
  /** An earlier run whose settings are taken. */
  from: string | null;
  /** The name of the template in the address. */
  application: string | null;
}

export function StartView({ isSweep, from, application }: Props) {
  const offer = useLoaded(() => loadOffer(from), [from]);
  const named = (name: string | null | undefined) => offer.data?.templates.find((it) => it.name === name);
  const template = named(application) ?? named(offer.data?.earlier?.template) ?? offer.data?.templates[0];
  const choose = ({ name }: Template) => replaceRoute(isSweep ? "sweep" : "run", { from, template: name });
  return (
    <>
      {isSweep ? (
        <ViewHeading about="Give any setting several values. Every combination is measured, and the chart fills in meanwhile.">Sweep</ViewHeading>
      ) : (
        <ViewHeading about="Choose an application, its settings and a network. All hosts are on this machine, with an emulated network between them.">Run</ViewHeading>
      )}
      <ErrorLine text={offer.error} />
      {offer.data && template && (
        <>
          <ApplicationList templates={offer.data.templates} chosen={template} onChoose={choose} />
          <StartForm key={`${isSweep}${from}`} offer={offer.data} template={template} isSweep={isSweep} />
        </>
      )}
      {isSweep && <ExperimentList />}
    </>
  );
}

/** What a person has set for one template. */
interface TemplateSettings {
  values: KnobValues;
  files: FileChoices;
}

function StartForm({ offer, template, isSweep }: { offer: Offer; template: Template; isSweep: boolean }) {
  const { networks } = offer;
  const earlier = offer.earlier?.template === template.name ? offer.earlier : null;
  // Those of each template stay, so that one can look at another one and come back.
  const [changed, setChanged] = useState<Record<string, TemplateSettings>>({});
  const initial = useMemo(() => initialSettings(template, isSweep, earlier), [template]);
  const { values, files } = changed[template.name] ?? initial;
  const change = (part: Partial<TemplateSettings>) =>
    setChanged((before) => ({ ...before, [template.name]: { ...(before[template.name] ?? initial), ...part } }));
  const [repetitionsText, setRepetitionsText] = useState(String(offer.earlier?.repetitions ?? 1));
  const repetitions = Math.min(20, Math.max(1, Math.round(Number(repetitionsText)) || 1));
  const [seedText, setSeedText] = useState(String(offer.earlier?.seed ?? ""));
  const seed = parseSeed(seedText);
  const [fault, setFault] = useState<ApiError | null>(null);
  const [isStarting, setStarting] = useState(false);
  const request = useMemo(() => requestOf(template, { values, files, repetitions, seed: seed ?? undefined }), [template, values, files, repetitions, seed]);
  const isComplete = !missingFile(template, files);
  const asked = useMemo(() => requestOf(template, { values, files: withoutArchives(template, files), repetitions, seed: seed ?? undefined }), [request]);
  const prediction = usePrediction(template, isComplete ? asked : null);
  useEffect(() => setFault(null), [request]);

  const start = async () => {
    const missing = missingFile(template, files);
    if (missing) return setFault(new ApiError(`Choose a file: ${missing.label}.`, 422, missing.name));
    if (seed === null) return setFault(new ApiError(`The seed is a whole number from 0 to ${count(MAX_SEED)}.`, 422, "seed"));
    setStarting(true);
    setFault(null);
    try {
      goTo(`run/${(await api.start(request)).id}`);
    } catch (error) {
      setFault(error as ApiError);
      setStarting(false);
    }
  };
  const isOfKnob = template.knobs.some((knob) => knob.name === fault?.field);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        void start();
      }}
    >
      <KnobGroups
        {...{ template, networks, values, files, isSweep }}
        earlierFiles={earlierFileNames(earlier?.values ?? {})}
        onValues={(values) => change({ values })}
        onFiles={(files) => change({ files })}
        refused={fault?.field && isOfKnob ? { field: fault.field, error: fault.message } : null}
      />
      <div class="start-bar">
        <Expectation template={template} points={countPoints(values)} repetitions={repetitions} prediction={prediction} />
        <label class="repetitions">
          Repetitions
          <input
            type="number"
            min={1}
            max={20}
            value={repetitionsText}
            onInput={(event) => setRepetitionsText(event.currentTarget.value)}
            onBlur={() => setRepetitionsText(String(repetitions))}
          />
        </label>
        <details class="advanced" open={offer.earlier?.seed !== undefined}>
          <summary>Advanced</summary>
          <label class="repetitions">
            Seed
            <input
              type="text"
              inputMode="numeric"
              placeholder="1"
              title="Runs with the same seed lose the same packets"
              value={seedText}
              aria-invalid={seed === null}
              onInput={(event) => setSeedText(event.currentTarget.value)}
            />
          </label>
        </details>
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

function initialSettings(template: Template, isSweep: boolean, earlier: TemplateRequest | null): TemplateSettings {
  const values = earlier?.values ?? null;
  return { values: earlierValues(defaultValues(template, isSweep), values), files: initialFiles(template, values) };
}

function earlierFileNames(values: Record<string, RequestValue[]>): Record<string, string> {
  const names = Object.entries(values).flatMap(([knob, [first]]) => (first !== undefined && isFile(first) ? [[knob, first.name] as const] : []));
  return Object.fromEntries(names);
}

/** How long the run will take, and what the models expect of each point. */
function Expectation({ template, points, repetitions, prediction }: { template: Template; points: number; repetitions: number; prediction: RunPrediction | null }) {
  const text = prediction && predictionText(prediction.predictions, template);
  const predicted = prediction?.predictions.length ?? 0;
  return (
    <div class="expected" aria-live="polite">
      <p>
        <b>{plural(points * repetitions, "trial")}</b>
        {prediction?.seconds != null && <>, <b>{duration(prediction.seconds)}</b> in all</>}
      </p>
      {text && <p class="hint">Predicted: {text}{predicted < points && `, for ${predicted} of ${points} points`}</p>}
    </div>
  );
}

/** How long the settings must stay the same before the server is asked, in ms. */
const DEBOUNCE_MS = 200;

/** Asks for the prediction when a person has changed the request. Null without one. */
function usePrediction(template: Template, request: RunRequest | null): RunPrediction | null {
  const [known, setKnown] = useState<{ template: Template; prediction: RunPrediction } | null>(null);
  const asker = useMemo(
    () =>
      latestOnly(
        async ({ template, request }: { template: Template; request: RunRequest }) => ({ template, prediction: await api.predict(request) }),
        setKnown,
        () => setKnown(null),
      ),
    [],
  );
  useEffect(() => {
    if (!request) return setKnown(null);
    const timer = window.setTimeout(() => asker.ask({ template, request }), DEBOUNCE_MS);
    return () => window.clearTimeout(timer);
  }, [template, request]);
  useEffect(() => asker.end, []);
  // Until the new one is there, that of the settings before is shown, but not that of another template.
  return known?.template === template ? known.prediction : null;
}
