// Live: what runs on this host, each second.
import { useState } from "preact/hooks";
import { api } from "../api";
import { duration, plural } from "../format";
import { ChatGroups } from "../live/chat";
import { Facts, plainFacts, streamFacts, tunnelFacts } from "../live/facts";
import { Problems } from "../live/problems";
import { Quorum } from "../live/quorum";
import { ChannelRibbons } from "../live/ribbons";
import type { ChatGroupStatus, LiveDocument, LiveProcess, QuorumStatus } from "../live/types";
import { ErrorLine, ViewHeading } from "../parts/basics";
import { usePolled } from "../parts/load";

export function LiveView() {
  const [processes, setProcesses] = useState<LiveProcess[] | null>(null);
  const [error, setError] = useState<string | null>(null);
  usePolled(async () => {
    try {
      setProcesses((await api.live<LiveDocument>()).processes);
      setError(null);
    } catch (failure) {
      setError((failure as Error).message);
    }
  }, 1000, []);
  const problems = processes?.reduce((sum, it) => sum + it.problems.length, 0) ?? 0;
  return (
    <>
      <ViewHeading about="The processes of Sunder on this host, as their status sockets report them. Nothing is changed here.">Live</ViewHeading>
      <ErrorLine text={error} />
      {processes && processes.length > 0 && (
        <p aria-live="polite" class={problems > 0 ? "state-line wrong" : "state-line"}>
          {plural(processes.length, "process", "processes")}, {problems > 0 ? plural(problems, "problem") : "no problem"}
        </p>
      )}
      {processes?.length === 0 && <p class="empty">No tunnel, stream, quorum, chat proxy or transfer runs on this host, or their sockets belong to another user.</p>}
      {processes?.map((process) => <ProcessCard key={`${process.kind} ${process.name} ${process.pid ?? ""}`} process={process} />)}
    </>
  );
}

function ProcessCard({ process }: { process: LiveProcess }) {
  const { kind, name, pid, since_s, problems } = process;
  return (
    <section class={problems.length > 0 ? "card has-problem" : "card"} aria-label={`${kind} ${name}`}>
      <div class="card-heading">
        <h2><span class="hint">{kind}</span> {name}</h2>
        <span class="hint">
          {since_s !== undefined && `running for ${duration(since_s)}`}
          {pid !== undefined && `, process ${pid}`}
        </span>
      </div>
      {problems.length > 0 && <Problems problems={problems} />}
      {process.channels && process.channels.length > 0 && <ChannelRibbons name={name} channels={process.channels} />}
      <Details process={process} />
    </section>
  );
}

function Details({ process: { kind, status } }: { process: LiveProcess }) {
  switch (kind) {
    case "tunnel":
      return <Facts facts={tunnelFacts(status)} />;
    case "stream":
      return <Facts facts={streamFacts(status)} />;
    case "quorum":
      return <Quorum status={status as unknown as QuorumStatus} />;
    case "chat proxy":
      return <ChatGroups groups={(status.groups ?? []) as ChatGroupStatus[]} />;
    default:
      return <Facts facts={plainFacts(status)} />;
  }
}
