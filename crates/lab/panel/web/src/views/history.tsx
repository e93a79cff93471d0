// All runs, a page at a time.
import { useEffect, useState } from "preact/hooks";
import { api } from "../api";
import { count, moment } from "../format";
import { ConfirmDialog, ErrorLine, StateBadge, ViewHeading } from "../parts/basics";
import { useLoaded } from "../parts/load";
import { labelsOf } from "../parts/labels";
import { NoteField } from "../parts/note-field";
import { goTo } from "../router";
import { type RunSummary, type Template, isOver } from "../types";

const PAGE = 50;

export function HistoryView() {
  const [search, setSearch] = useState("");
  const [asked, setAsked] = useState("");
  // The runs after which the pages up to this one begin.
  const [pages, setPages] = useState<string[]>([]);
  const [chosen, setChosen] = useState<string[]>([]);
  const [deleting, setDeleting] = useState<RunSummary[] | null>(null);
  const [error, setError] = useState<string | null>(null);
  useEffect(() => {
    const timer = window.setTimeout(() => {
      setAsked(search);
      setPages([]);
    }, 200);
    return () => window.clearTimeout(timer);
  }, [search]);
  const before = pages.at(-1);
  const templates = useLoaded(api.templates, []);
  const list = useLoaded(() => api.runs({ limit: PAGE, search: asked, ...(before !== undefined && { before }) }), [asked, before]);
  const runs = list.data?.runs ?? [];
  const total = list.data?.total ?? 0;
  const first = pages.length * PAGE;

  const remove = async (removed: RunSummary[]) => {
    setDeleting(null);
    try {
      for (const run of removed) await api.remove(run.id);
      setChosen((ids) => ids.filter((id) => !removed.some((run) => run.id === id)));
    } catch (failure) {
      setError((failure as Error).message);
    }
    list.reload();
  };
  const choose = (id: string, isOn: boolean) => setChosen((ids) => (isOn ? [...ids, id] : ids.filter((it) => it !== id)));
  return (
    <>
      <ViewHeading about="Select two or more runs to lay their curves over each other.">History</ViewHeading>
      <div class="toolbar">
        <label class="search">
          Search
          <input type="search" placeholder="title, note or name" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
        </label>
        <button type="button" class="primary small" disabled={chosen.length < 2} onClick={() => goTo(`compare/${chosen.join(",")}`)}>
          Compare{chosen.length > 0 ? ` ${chosen.length}` : ""}
        </button>
        {chosen.length > 0 && <button type="button" onClick={() => setChosen([])}>Select none</button>}
      </div>
      <ErrorLine text={error ?? list.error} />
      {list.data && total === 0 && <p class="empty">{asked ? "No run contains this text." : "No run yet. Start one in Run or Sweep."}</p>}
      {runs.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Runs">
          <table class="runs">
            <thead>
              <tr>
                <th scope="col"><span class="hidden">select</span></th>
                <th scope="col">run</th>
                <th scope="col">state</th>
                <th scope="col" class="number">trials</th>
                <th scope="col">note</th>
                <th scope="col"><span class="hidden">actions</span></th>
              </tr>
            </thead>
            <tbody>
              {runs.map((run) => (
                <RunRow key={run.id} run={run} templates={templates.data ?? []} isChosen={chosen.includes(run.id)} onChoose={(isOn) => choose(run.id, isOn)} onDelete={() => setDeleting([run])} onError={setError} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {total > 0 && (
        <div class="pages">
          <button type="button" disabled={pages.length === 0} onClick={() => setPages(pages.slice(0, -1))}>Newer</button>
          <span aria-live="polite">{count(first + 1)} to {count(first + runs.length)} of {count(total)}</span>
          <button type="button" disabled={first + runs.length >= total} onClick={() => setPages([...pages, runs.at(-1)!.id])}>Older</button>
        </div>
      )}
      {deleting && (
        <ConfirmDialog
          title="Delete this run?"
          text={`${deleting[0]!.title}, ${moment(deleting[0]!.created)}: its results and files will be removed from the disk.`}
          action="Delete"
          onConfirm={() => remove(deleting)}
          onCancel={() => setDeleting(null)}
        />
      )}
    </>
  );
}

interface RowProps {
  run: RunSummary;
  templates: Template[];
  isChosen: boolean;
  onChoose: (isOn: boolean) => void;
  onDelete: () => void;
  onError: (text: string) => void;
}

function RunRow({ run, templates, isChosen, onChoose, onDelete, onError }: RowProps) {
  return (
    <tr>
      <td class="select"><input type="checkbox" aria-label={`Select ${run.title} of ${moment(run.created)}`} checked={isChosen} onChange={(event) => onChoose(event.currentTarget.checked)} /></td>
      <td>
        <a href={`#/run/${run.id}`}>{run.title}</a>
        <span class="hint"> {moment(run.created)}{run.shared && ", others can open it by a link"}</span>
        <div class="hint">{labelsOf(templates, run.request).settings(false)}</div>
      </td>
      <td>
        <StateBadge state={run.state} />
        {run.error && <div class="hint wrong">{run.error}</div>}
      </td>
      <td class="number">
        {run.done < run.total ? `${count(run.done)} of ${count(run.total)}` : count(run.total)}
        {run.invalid > 0 && <div class="hint">{count(run.invalid)} invalid</div>}
      </td>
      <td class="note"><NoteField id={run.id} note={run.note} onError={onError} /></td>
      <td class="actions">
        <button type="button" aria-label={`Delete ${run.title} of ${moment(run.created)}`} disabled={!isOver(run.state)} onClick={onDelete}>Delete</button>
      </td>
    </tr>
  );
}
