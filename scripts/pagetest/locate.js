// Finds elements as a person names them: by role and accessible name. Runs in the page.
const page = (() => {
  const SELECTORS = {
    alert: "[role=alert]",
    button: "button, summary, [role=button]",
    checkbox: "input[type=checkbox]",
    combobox: "select",
    dialog: "dialog[open]",
    group: "fieldset, [role=group]",
    heading: "h1, h2, h3",
    image: "[role=img]",
    link: "a[href]",
    listitem: "li",
    progressbar: "progress",
    radio: "input[type=radio]",
    region: "[role=region], section[aria-label], section[aria-labelledby]",
    row: "tr",
    searchbox: "input[type=search]",
    slider: "input[type=range]",
    spinbutton: "input[type=number]",
    textbox: "input[type=text], input:not([type]), textarea",
  };

  const squeezed = (text) => text.replace(/\s+/g, " ").trim();

  /** The text of an element without what is only decoration, and without values of fields. */
  const textOf = (element) => {
    const copy = element.cloneNode(true);
    copy.querySelectorAll("[aria-hidden=true], select, input, textarea").forEach((it) => it.remove());
    return squeezed(copy.textContent);
  };

  const nameOf = (element) => {
    const labelled = element.getAttribute("aria-labelledby");
    if (labelled) return squeezed(labelled.split(/\s+/).map((id) => textOf(document.getElementById(id))).join(" "));
    const label = element.getAttribute("aria-label");
    if (label) return squeezed(label);
    if (element.labels?.length) return squeezed([...element.labels].map(textOf).join(" "));
    const legend = element.querySelector(":scope > legend");
    return legend ? textOf(legend) : textOf(element);
  };

  const isVisible = (element) => element.checkVisibility({ visibilityProperty: true });

  /** The visible elements of a role; with a name, those whose whole name is this regular expression. */
  const all = (role, name, within) =>
    [...(within ?? document).querySelectorAll(SELECTORS[role])].filter(
      (it) => isVisible(it) && (name === null || new RegExp(`^(?:${name})$`).test(nameOf(it))),
    );

  /** What a click on an element has to hit: a box to tick is small, or drawn by its label. */
  const target = (element) => {
    const hit = element.matches("input[type=checkbox], input[type=radio]") ? element.labels[0] ?? element : element;
    hit.scrollIntoView({ block: "center", behavior: "instant" });
    return hit;
  };

  /** The texts of the cells of a table, row by row. */
  const cells = (within) => [...within.querySelectorAll("tr")].map((row) => [...row.cells].map(textOf));

  /** The terms of a list with what is said of each. */
  const definitions = (within) =>
    Object.fromEntries([...within.querySelectorAll("dt")].map((it) => [textOf(it), textOf(it.nextElementSibling)]));

  /** Whether something in colour is drawn: axes and their labels are grey. */
  const hasInk = (element) =>
    [...element.querySelectorAll("canvas")].some((canvas) => {
      if (!canvas.width || !canvas.height) return false;
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      for (let i = 0; i < data.length; i += 4) {
        const [red, green, blue, alpha] = data.subarray(i, i + 4);
        if (alpha > 200 && Math.max(red, green, blue) - Math.min(red, green, blue) > 60) return true;
      }
      return false;
    });

  /** Whether the text of an element is red. */
  const isRed = (element) => {
    const [red, green, blue] = getComputedStyle(element).color.match(/[\d.]+/g).map(Number);
    return red > green + 40 && red > blue + 40;
  };

  return { all, cells, definitions, hasInk, isRed, nameOf, target, textOf };
})();
