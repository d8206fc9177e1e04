/** Numbers with units, and times, in words. */

export type Unit = "millicores" | "bytes" | "units";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const hundredth = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const POWERS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/** Unit of a resource that no column describes. */
export function unitOf(resource: string): Unit {
  if (resource === "cpu") return "millicores";
  return /^(memory|ephemeral-storage|storage|hugepages-.*)$/.test(resource) ? "bytes" : "units";
}

export function count(value: number): string {
  return whole.format(value);
}

export function counted(value: number, noun: string): string {
  return `${whole.format(value)} ${noun}${value === 1 ? "" : "s"}`;
}

export function decimal(value: number): string {
  return (Math.abs(value) < 10 ? hundredth : tenth).format(value);
}

export function signed(value: number): string {
  return value > 0 ? `+${whole.format(value)}` : whole.format(value);
}

export function percent(share: number): string {
  return `${(Math.abs(share) < 0.1 && share !== 0 ? tenth : whole).format(share * 100)} %`;
}

export function amount(value: number, unit: Unit): string {
  if (unit === "millicores") return value === 1000 ? "1 core" : `${decimal(value / 1000)} cores`;
  if (unit === "units") return whole.format(value);
  let power = 0;
  for (; Math.abs(value) >= 1024 && power < POWERS.length - 1; power++) value /= 1024;
  return `${decimal(value)} ${POWERS[power]}`;
}

/** Duration in the two largest units. */
export function duration(seconds: number): string {
  const sign = seconds < 0 ? "-" : "";
  const value = Math.abs(seconds);
  if (value < 1) return value === 0 ? "0 s" : `${sign}${Math.max(1, Math.round(value * 1000))} ms`;
  if (value < 60) return `${sign}${decimal(value)} s`;
  const total = Math.round(value);
  const [days, hours, minutes, rest] = [Math.floor(total / 86400), Math.floor(total / 3600) % 24, Math.floor(total / 60) % 60, total % 60];
  if (days) return `${sign}${days} d ${hours} h`;
  return sign + (hours ? `${hours} h ${minutes} min` : `${minutes} min ${rest} s`);
}

/** Tells times of the calendar from seconds since the start of a recording. */
export function onCalendar(seconds: number): boolean {
  return seconds > 1e8;
}

const clockFormat = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const dayFormat = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const dateFormat = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** Moment as a clock shows it; of a recording, the time since its start as h:mm:ss. */
export function moment(seconds: number): string {
  if (onCalendar(seconds)) return clockFormat.format(seconds * 1000);
  const total = Math.max(0, Math.floor(seconds));
  const two = (value: number) => String(value).padStart(2, "0");
  return `${Math.floor(total / 3600)}:${two(Math.floor(total / 60) % 60)}:${two(total % 60)}`;
}

/** Moment on an axis whose marks are `step` seconds apart. */
export function coarse(seconds: number, step: number): string {
  if (step >= 86400) return dayFormat.format(seconds * 1000);
  return step >= 60 ? moment(seconds).slice(0, 5) : moment(seconds);
}

export function fullMoment(seconds: number): string {
  return onCalendar(seconds) ? dateFormat.format(seconds * 1000) : moment(seconds);
}
