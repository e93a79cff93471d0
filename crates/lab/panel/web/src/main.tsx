import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { api, setUnknownHandler } from "./api";
import { type Route, guestRun, useRoute } from "./router";
import "./styles/base.css";
import "./styles/parts.css";
import "./styles/charts.css";
import "./styles/live.css";
import "./styles/views.css";
import { type Theme, applyTheme, chosenTheme } from "./theme";
import type { Session } from "./types";
import { AccountView } from "./views/account";
import { CompareView } from "./views/compare";
import { HistoryView } from "./views/history";
import { LiveView } from "./views/live";
import { PlanView } from "./views/plan";
import { InvitationForm, LoginForm } from "./views/login";
import { StartView } from "./views/start";
import { WatchView } from "./views/watch";

const VIEWS = [
  ["run", "Run"],
  ["sweep", "Sweep"],
  ["history", "History"],
  ["plan", "Plan"],
  ["live", "Live"],
] as const;

/** A view of servers with accounts. */
const ACCOUNT = ["account", "Account"] as const;

function Page() {
  const route = useRoute();
  const [isUnknown, setUnknown] = useState(false);
  const [session, setSession] = useState<Session | null>(null);
  const main = useRef<HTMLElement>(null);
  const ask = () => {
    const answered = (found: Session) => {
      setSession(found);
      setUnknown(false);
    };
    // Without an answer, each view says so.
    const failed = () => setSession({ accounts: false, name: null, usage: null });
    return api.session().then(answered, failed);
  };
  useEffect(() => {
    setUnknownHandler(() => setUnknown(true));
    void ask();
  }, []);
  useEffect(() => {
    document.title = `${titleOf(route)} – Sunder`;
    scrollTo(0, 0);
  }, [route.view, route.rest]);
  if (session === null) return null;
  if (session.accounts && route.view === "invitation") return <InvitationForm route={route} onEntered={ask} />;
  if (session.accounts && (isUnknown || session.name === null)) return <LoginForm onEntered={ask} />;
  if (isUnknown) return <Unknown />;
  // What runs on the host is for its only user.
  const views = session.accounts ? [...VIEWS.filter(([view]) => view !== "live"), ACCOUNT] : VIEWS;
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); main.current?.focus(); }}>Skip to the content</a>
      <header class="top">
        <a class="brand" href="#/run"><img src="/icon.svg" alt="" width="24" height="24" /> Sunder</a>
        <nav aria-label="Views">
          {views.map(([view, label]) => (
            <a key={view} href={`#/${view}${applicationOf(route, view)}`} aria-current={current(route) === view ? "page" : undefined}>{label}</a>
          ))}
        </nav>
        <ThemeSwitch />
      </header>
      <main ref={main} id="main" tabIndex={-1}><View key={`${route.view}/${route.rest}`} route={route} onLeft={ask} /></main>
    </>
  );
}

/** Run and Sweep keep the application when a person goes from one to the other. */
function applicationOf(route: Route, view: string): string {
  const name = route.query.get("template");
  const isStart = (it: string) => it === "run" || it === "sweep";
  return name && isStart(route.view) && isStart(view) ? `?template=${encodeURIComponent(name)}` : "";
}

/** One run, for a reader who has only a link to it. */
function GuestPage({ id }: { id: string }) {
  const [isUnknown, setUnknown] = useState(false);
  useEffect(() => {
    document.title = `Run ${id} – Sunder`;
    setUnknownHandler(() => setUnknown(true));
  }, []);
  return (
    <>
      <header class="top">
        <span class="brand"><img src="/icon.svg" alt="" width="24" height="24" /> Sunder</span>
        <span class="guest">One run, shown by a link</span>
        <ThemeSwitch />
      </header>
      {isUnknown ? <WithdrawnLink /> : <main id="main"><WatchView id={id} /></main>}
    </>
  );
}

/** The part of the navigation to which a view belongs. */
function current({ view, rest }: Route): string {
  return view === "compare" || (view === "run" && rest) ? "history" : view;
}

function titleOf({ view, rest }: Route): string {
  if (view === "run" && rest) return `Run ${rest}`;
  if (view === "compare") return "Compare";
  if (view === "account") return "Account";
  if (view === "invitation") return "Invitation";
  return VIEWS.find(([name]) => name === view)?.[1] ?? "Not found";
}

function View({ route: { view, rest, query }, onLeft }: { route: Route; onLeft: () => void }) {
  switch (view) {
    case "run":
      return rest ? <WatchView id={rest} /> : <StartView isSweep={false} from={query.get("from")} application={query.get("template")} />;
    case "sweep":
      return <StartView isSweep from={query.get("from")} application={query.get("template")} />;
    case "history":
      return <HistoryView />;
    case "compare":
      return <CompareView key={rest} ids={rest.split(",").filter(Boolean)} />;
    case "plan":
      return <PlanView />;
    case "live":
      return <LiveView />;
    case "account":
      return <AccountView onLeft={onLeft} />;
    default:
      return <h1 tabIndex={-1}>There is no such view</h1>;
  }
}

function Unknown() {
  return (
    <main class="unknown">
      <h1>Open the address that <code>sunder lab serve</code> has printed</h1>
      <p>It contains a token, by which the server recognises this browser.</p>
    </main>
  );
}

function WithdrawnLink() {
  return (
    <main class="unknown">
      <h1>This link shows nothing any more</h1>
      <p>It has been withdrawn, or its run has been deleted. Ask the person who sent it for a new one.</p>
    </main>
  );
}

function ThemeSwitch() {
  const [theme, setTheme] = useState(chosenTheme);
  const choose = (chosen: Theme) => {
    applyTheme(chosen);
    setTheme(chosen);
  };
  return (
    <label class="theme">
      <span class="hidden">Colours</span>
      <select value={theme} onChange={(event) => choose(event.currentTarget.value as Theme)}>
        <option value="auto">Auto</option>
        <option value="light">Light</option>
        <option value="dark">Dark</option>
      </select>
    </label>
  );
}

applyTheme(chosenTheme());
render(guestRun === null ? <Page /> : <GuestPage id={guestRun} />, document.getElementById("page")!);
