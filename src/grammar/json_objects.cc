// Objects of JSON with members that are named, and names that are none of those.
#include <map>
#include <vector>

#include "grammar/json_grammar.h"
#include "unicode/utf8.h"

namespace triptych {

JsonGrammar::Node JsonGrammar::object_of(const std::vector<Member>& members, std::optional<Node> other) {
  const auto behind_comma = [&](Node node) { return b_.sequence({comma(), node}); };
  Node more =
      other ? b_.repeat(behind_comma(*other), 0, std::nullopt) : b_.empty();  // when one is there already
  Node first = other ? b_.sequence({*other, more}) : b_.nothing();            // at least one
  bool may_be_empty = true;
  for (std::size_t i = members.size(); i-- > 0;) {
    more = b_.shared("more members", more);
    const Node from_here = b_.sequence({members[i].node, more});
    const Node behind = b_.sequence({comma(), members[i].node, more});
    if (members[i].is_required) {
      first = from_here;
      more = behind;
      may_be_empty = false;
    } else {
      first = b_.shared("members", b_.choice({from_here, first}));
      more = b_.choice({behind, more});
    }
  }
  const Node all = b_.sequence({first, blank()});
  return b_.sequence({b_.literal("{"), blank(), may_be_empty ? b_.optional(all) : all, b_.literal("}")});
}

// A rule for each beginning of a name.
JsonGrammar::Node JsonGrammar::other_key(const std::vector<std::string>& names) {
  struct Beginning {
    std::map<char32_t, std::size_t> next;
    bool is_name = false;
  };
  std::vector<Beginning> beginnings(1);
  for (const std::string& name : names) {
    std::size_t at = 0;
    for (std::size_t i = 0; i < name.size();) {
      const auto [place, is_new] = beginnings[at].next.try_emplace(utf8::next(name, i), beginnings.size());
      at = place->second;
      if (is_new) beginnings.emplace_back();
    }
    beginnings[at].is_name = true;
  }
  const Node quote = b_.literal("\"");
  const Node any = b_.shared("a character of a key", character_of(CharacterSet::all()));
  const Node rest = b_.shared("the rest of a key", b_.sequence({b_.repeat(any, 0, std::nullopt), quote}));
  if (names.empty()) return b_.sequence({quote, rest});
  std::vector<Node> from(beginnings.size());
  for (std::size_t i = beginnings.size(); i-- > 0;) {  // longer ones were added later
    std::vector<Node> out;
    CharacterSet taken;
    for (const auto& [character, next] : beginnings[i].next) {
      out.push_back(b_.sequence({character_of({{character, character}}), from[next]}));
      taken.add(character);
    }
    out.push_back(b_.sequence({character_of(taken.complement()), rest}));
    if (!beginnings[i].is_name) out.push_back(quote);
    from[i] = b_.shared("a key", b_.choice(out));
  }
  return b_.sequence({quote, from[0]});
}

}  // namespace triptych
