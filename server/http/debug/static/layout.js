// Where each bar is: x and width from tokens, the row from how deep it hangs.

export const ROW = 26;

// Bars of a subtree over so many pixels; those that would be narrower than a third of a pixel are
// left out, with all below them.
export function layout(top, width) {
  const bars = [];
  let rows = 0;
  if (!top || !top.total) return { bars, rows };
  const todo = [{ node: top, x: 0, w: width, row: 0 }];
  while (todo.length) {
    const bar = todo.pop();
    bars.push(bar);
    rows = Math.max(rows, bar.row + 1);
    const scale = bar.w / bar.node.total;
    let x = bar.x;
    for (const child of bar.node.below) {
      const w = child.total * scale;
      if (w >= 0.33) todo.push({ node: child, x, w, row: bar.row + 1 });
      x += w;
    }
    const folded = bar.node.folded;
    if (folded && folded.tokens * scale >= 0.33) {
      bars.push({ node: bar.node, folded, x, w: folded.tokens * scale, row: bar.row + 1 });
      rows = Math.max(rows, bar.row + 2);
    }
  }
  return { bars, rows };
}

export function barAt(bars, x, y) {
  const row = Math.floor(y / ROW);
  return bars.find((bar) => bar.row === row && x >= bar.x && x < bar.x + Math.max(bar.w, 1)) ?? null;
}
