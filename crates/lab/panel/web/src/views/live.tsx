export function LiveView() {
  return <h1 tabIndex={-1}>Live</h1>;
}
