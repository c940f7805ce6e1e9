// Server-sent events of a response body: the text after "data:" of each event, lines of one event joined.
// Field names, line ends and comments as in the HTML standard, section 9.2.6.
export async function* readEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", data = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    // A CR at the end may be half of a CR LF.
    const lines = rest.split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (data.length > 0) yield data.join("\n");
        data = [];
      } else if (line.startsWith("data:")) {
        data.push(line.slice(line[5] === " " ? 6 : 5));
      }
    }
  }
}
