/** Queues: places with their pods in groups: why they wait, since when and until when. */

import type { Queues } from "../api";
import { useDocument } from "../document";
import { count, counted, decimal, duration, fullMoment, moment } from "../format";
import { placeWords, PodLink, Shown, WorkloadLink } from "../parts";
import { href } from "../route";
import type { Run } from "../run";
import { Happenings } from "./happenings";

export function QueuesView({ run }: { run: Run }) {
  const document = useDocument<Queues>(run, "queues");
  return (
    <>
      <h1 tabIndex={-1}>Scheduling queue</h1>
      <Shown document={document} what="the queues">
        {(queues) => (
          <>
            <ul class="tiles">
              {queues.places.map((place) => (
                <li key={place.place} class={place.count ? "tile" : "tile none"}>
                  <a href={`#${place.place}`} onClick={(event) => jump(event, place.place)}>
                    <span class="tile-name">{place.place === "Permit" ? "On permit" : place.place}</span>
                    <b data-testid={`count-${place.place}`}>{count(place.count)}</b>
                    <span class="dim">{place.longest !== null && place.count ? `longest ${duration(place.longest)}` : placeWords(place.place)}</span>
                  </a>
                </li>
              ))}
              <li class="tile rates">
                <span class="tile-name">Pods per second</span>
                <span>
                  <b>{decimal(queues.rates.arriving)}</b> arriving
                </span>
                <span>
                  <b>{decimal(queues.rates.bound)}</b> bound
                </span>
                <span>
                  <b>{decimal(queues.rates.failed)}</b> failed
                </span>
              </li>
            </ul>
            {queues.places.every((place) => !place.count) && <p class="dim empty">No pod waits: every pod has a node.</p>}
            {queues.places.map((place) => place.count > 0 && <Place key={place.place} place={place} at={queues.at} />)}
          </>
        )}
      </Shown>
      <Happenings run={run} short />
    </>
  );
}

function jump(event: MouseEvent, place: string): void {
  event.preventDefault();
  document.getElementById(`place-${place}`)?.scrollIntoView();
  document.getElementById(`place-${place}`)?.focus();
}

function Place({ place, at }: { place: Queues["places"][number]; at: number }) {
  const shown = place.groups.reduce((sum, group) => sum + group.count, 0);
  return (
    <section class="panel" data-testid={`place-${place.place}`}>
      <h2 id={`place-${place.place}`} tabIndex={-1}>
        {place.place} <span class="dim">{placeWords(place.place)}</span>
      </h2>
      <div class="scroll">
        <table class="list">
          <thead>
            <tr>
              <th scope="col" class="number">
                Pods
              </th>
              <th scope="col">Workload</th>
              <th scope="col">Why</th>
              <th scope="col">Rejected by</th>
              <th scope="col" class="number">
                Attempts
              </th>
              <th scope="col" class="number">
                Longest
              </th>
              <th scope="col">Tried again</th>
            </tr>
          </thead>
          <tbody>
            {place.groups.map((group) => (
              <tr key={`${group.pod} ${group.why}`}>
                <td class="number">{count(group.count)}</td>
                <td>
                  <WorkloadLink workload={group.workload} namespace={group.pod.split("/")[0]} />
                  <div>
                    <PodLink pod={group.pod} />
                  </div>
                </td>
                <td class="why">{group.why || <span class="dim">{place.place === "Active" ? "not tried yet" : "not recorded"}</span>}</td>
                <td>{group.rejectedBy.join(", ")}</td>
                <td class="number">{group.attempts || ""}</td>
                <td class="number nowrap">{group.waited !== null ? duration(group.waited) : ""}</td>
                <td class="nowrap">{group.until !== null ? <span title={fullMoment(group.until)}>{group.until > at ? `in ${duration(group.until - at)}` : moment(group.until)}</span> : <span class="dim">{place.place === "Unschedulable" || place.place === "Gated" ? "after an event" : ""}</span>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {place.leftOut > 0 && (
        <p class="dim">
          {counted(place.leftOut, "more pod")}, in groups that are not listed. <a href={href(["pods"], { state: place.place })}>All pods here</a>
        </p>
      )}
      {place.leftOut === 0 && shown > 1 && (
        <p>
          <a href={href(["pods"], { state: place.place })}>All {count(place.count)} pods here</a>
        </p>
      )}
    </section>
  );
}
