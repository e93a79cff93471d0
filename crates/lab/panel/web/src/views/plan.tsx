export function PlanView() {
  return <h1 tabIndex={-1}>Plan</h1>;
}
