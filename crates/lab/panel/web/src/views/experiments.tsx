// The built-in experiments, which reproduce the papers' figures.
import { useState } from "preact/hooks";
import { api } from "../api";
import { count } from "../format";
import { CopyButton, ErrorLine } from "../parts/basics";
import { useLoaded } from "../parts/load";
import { goTo } from "../router";

export function ExperimentList() {
  const list = useLoaded(api.experiments, []);
  const [search, setSearch] = useState("");
  const [error, setError] = useState<string | null>(null);
  const words = search.toLowerCase();
  const found = list.data?.filter(({ name, about, paper }) => `${name} ${about} ${paper ?? ""}`.toLowerCase().includes(words));
  const start = (name: string) =>
    api.start({ experiment: name }).then(({ id }) => goTo(`run/${id}`), (failure: Error) => setError(failure.message));
  return (
    <section class="experiments" aria-labelledby="experiments-title">
      <h2 id="experiments-title">Experiments of the papers</h2>
      <div class="toolbar">
        <label class="search">
          Search
          <input type="search" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
        </label>
      </div>
      <ErrorLine text={error ?? list.error} />
      <div class="scroll" tabIndex={0} role="region" aria-label="Table of experiments">
        <table>
          <thead>
            <tr>
              <th scope="col">experiment</th>
              <th scope="col">reproduces</th>
              <th scope="col" class="number">trials</th>
              <th scope="col"><span class="hidden">actions</span></th>
            </tr>
          </thead>
          <tbody>
            {found?.map(({ name, about, paper, trials }) => (
              <tr key={name}>
                <td>
                  <b>{name}</b>
                  <div class="hint">{about}</div>
                </td>
                <td>{paper}</td>
                <td class="number">{count(trials)}</td>
                <td class="actions">
                  <CopyButton text={() => api.toml({ experiment: name })}>Copy .toml</CopyButton>
                  <button type="button" aria-label={`Run ${name}`} onClick={() => start(name)}>Run</button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
