// Hostile templates end in an error, soon and in little memory; and what they leave behind can be freed.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/asan.h"
#include "base/error.h"
#include "jinja/evaluator.h"
#include "jinja/json_values.h"
#include "jinja/parser.h"

namespace triptych::jinja {
namespace {

std::string run(const std::string& source, const Limits& limits = {}) {
  try {
    const auto program = parse_program(source, "t");
    Evaluator evaluator(*program, limits, std::tm{}, 1u << 26);
    return "text of " + std::to_string(evaluator.render().size());
  } catch (const Error& error) {
    EXPECT_NE(error.code(), ErrorCode::kInternal) << error.what();
    return error.what();
  }
}

std::string repeat(const std::string& text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}

std::string expect_soon_refused(const std::string& source, const Limits& limits = {}) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string result = run(source, limits);
  const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_FALSE(result.starts_with("text of")) << source << ": " << result;
  EXPECT_TRUE(result.starts_with("t:")) << source << ": " << result;
  EXPECT_LT(seconds, 60) << source;  // generous: sanitizers and a busy machine
  return result;
}

TEST(JinjaLimits, HostileTemplatesEnd) {
  const std::string hostile[] = {
      "{{ 'a' * 1000000000000 }}",
      "{{ ['a'] * 1000000000000 }}",
      "{{ ('a' * 60000000) ~ ('a' * 60000000) }}",
      "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor "
      "%}",
      "{% set ns = namespace(x=['a']) %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "{% set ns = namespace(x=(1,)) %}{% for i in range(90) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ "
      "{ns.x: 1} }}",
      "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}",
      "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = {'a': ns.x} %}{% endfor %}",
      "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = ns.x|map('upper') %}{% endfor "
      "%}",
      "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = ns.x|batch(1) %}{% endfor %}",
      "{% set ns = namespace(x='') %}{% for i in range(100000) %}{% set ns.x = cycler(ns.x) %}{% endfor %}",
      "{% set ns = namespace(x='') %}{% for i in range(100000) %}{% set ns.x = joiner(ns.x) %}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m(n) %}{{ m(n + 1) }}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
      "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{{ '%1000000000d' % 1 }}",
      "{{ '%*d' % (1000000000, 1) }}",
      "{{ '%.1000000f' % 1 }}",
      "{{ '{:1000000000}'.format(1) }}",
      "{{ '{:.100000f}'.format(1.0) }}",
      "{{ '{:010000000,}'.format(1) }}",
      "{{ 'x'|center(1000000000000) }}",
      "{{ 'x'.ljust(1000000000000) }}",
      "{{ 'x'.zfill(1000000000000) }}",
      "{{ '\t'.expandtabs(1000000000000) }}",
      "{{ 'a\nb'|indent(1000000000000) }}",
      "{{ ('a\n' * 100000)|indent(100000) }}",
      "{{ ('a' * 1000000)|replace('a', 'b' * 1000000) }}",
      "{{ ('a' * 1000000).replace('', 'b' * 1000000) }}",
      "{{ range(100000)|join('x' * 100000) }}",
      "{{ [1]|tojson(indent=1000000000) }}",
      "{{ range(1000000000) }}",
      "{{ range(0, 9000000000000000, 1) }}",
      "{{ [1]|batch(1000000000, 1)|list }}",
      "{{ [1]|slice(1000000000)|list }}",
      "{% set t = 'a' * 30000000 %}{% for i in range(100000) %}{{ (t + 'b') in t }}{% endfor %}",
      "{% set ns = namespace(m=0) %}{% macro m() %}{% macro n() %}{{ ns.m() }}{% endmacro %}{% set ns.m = n "
      "%}{% endmacro %}"
      "{% for i in range(100000) %}{{ m() }}{% endfor %}{{ ns.m() }}",
      "{{ 9223372036854775807 + 1 }}",
      "{{ -9223372036854775807 - 2 }}",
      "{{ 9223372036854775807 * 2 }}",
      "{{ 10 ** 100 }}",
      "{{ 2 ** 100000000000 }}",
      "{{ (-9223372036854775807 - 1) // -1 }}",
      "{{ (-9223372036854775807 - 1)|abs }}",
      "{{ -(-9223372036854775807 - 1) }}",
      "{{ 99999999999999999999 }}",
      "{{ 1e300|int }}",
      "{{ 9223372036854775807|round(-19) }}",
      "{{ strftime_now('x' * 100000) }}",
  };
  for (const std::string& source : hostile) expect_soon_refused(source);
}

// They repeat themselves until no steps are left. A tenth of these is as good for a sanitizer, under which
// each costs many times as much.
TEST(JinjaLimits, EndlessTemplatesEnd) {
  const std::string endless[] = {
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{% set ns = namespace(x=['a']) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ "
      "ns.x }}",
      "{% set ns = namespace(x=['a']) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ "
      "ns.x|tojson }}",
      "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}{% set "
      "ns.y = [ns.y, ns.y] %}"
      "{% endfor %}{{ ns.x == ns.y }}",
      "{{ range(100000)|map('string')|list|sort|join|list|sort|unique|list|length }}{% for i in range(10000) "
      "%}{{ range(100000)|sum }}"
      "{% endfor %}",
      "{{ range(100000)|unique|list|length }}",
      "{% for i in range(100000) %}{% if ('a' * 1000000) == i %}{% endif %}{% endfor %}",
      "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = ns.l + ['a' * 100000 ~ i] "
      "%}{% endfor %}",
      "{% for i in range(100000) %}{% set x = namespace(a='a' * 100000) %}{% endfor %}",
      "{% for i in range(100000) %}{% macro m() %}{% endmacro %}{% set x = 'a' * 100000 %}{% endfor %}",
  };
  Limits limits;
#ifdef TRIPTYCH_ASAN
  limits.max_steps /= 10;
#endif
  const std::string expected = fmt::format("the template needs more than {} steps", limits.max_steps);
  for (const std::string& source : endless)
    EXPECT_NE(expect_soon_refused(source, limits).find(expected), std::string::npos) << source;
}

// What looks at each character of 2 MB is allowed some ten times, not some hundred times.
TEST(JinjaLimits, WorkOnCharactersCounts) {
  const auto repeated = [](const std::string& expression, int n) {
    return run(fmt::format(
        "{{% set x = 'a ' * 1000000 %}}{{% for i in range({}) %}}{{% set y = {} %}}{{% endfor %}}", n,
        expression));
  };
  for (const char* expression : {"x|wordcount", "x is lower", "x.islower()", "x|tojson|length"}) {
    EXPECT_TRUE(repeated(expression, 5).starts_with("text of")) << expression;
    EXPECT_FALSE(repeated(expression, 60).starts_with("text of")) << expression;
  }
}

TEST(JinjaLimits, SearchIsLinear) {
  // Half a million bytes in a million: quadratic search would need minutes.
  EXPECT_EQ(run("{% set t = 'a' * 1000000 %}{{ (t ~ 'b').count(('a' * 500000) ~ 'b') }}{{ t.rfind('b' ~ 'a' "
                "* 500000) }}"
                "{{ t.find('a' * 500000 ~ 'b') }}{{ ('a' * 500000 ~ 'b') in t }}{{ t.split('a' * 400000 ~ "
                "'b')|length }}"
                "{{ t.rsplit('b' ~ 'a' * 400000)|length }}{{ t|replace('a' * 400000 ~ 'b', '')|length }}"),
            "text of 19");
}

TEST(JinjaLimits, DeepSourcesEnd) {
  const std::string deep[] = {
      "{{ " + repeat("(", 10000) + "1" + repeat(")", 10000) + " }}",
      "{{ " + repeat("[", 10000) + repeat("]", 10000) + " }}",
      "{{ " + repeat("{1:", 10000) + "1" + repeat("}", 10000) + " }}",
      "{{ " + repeat("not ", 10000) + "1 }}",
      "{{ " + repeat("- ", 10000) + "1 }}",
      "{{ 1" + repeat(" + 1", 10000) + " }}",
      "{{ 1" + repeat(" ** 1", 10000) + " }}",
      "{{ 1" + repeat(" and 1", 10000) + " }}",
      "{{ 1" + repeat(" if 1", 10000) + " }}",
      "{{ 1" + repeat(" if 1 else 1", 10000) + " }}",
      "{{ a" + repeat(".b", 10000) + " }}",
      "{{ a" + repeat("[0]", 10000) + " }}",
      "{{ a" + repeat("()", 10000) + " }}",
      "{{ a" + repeat("|upper", 10000) + " }}",
      "{{ a" + repeat(" is defined", 10000) + " }}",
      "{{ f" + repeat("(f", 10000) + repeat(")", 10000) + " }}",
      repeat("{% if 1 %}", 10000) + repeat("{% endif %}", 10000),
      repeat("{% for x in 'a' %}", 10000) + repeat("{% endfor %}", 10000),
      "{% set " + repeat("(", 10000) + "a" + repeat(")", 10000) + " = 1 %}",
      "{% for " + repeat("(", 10000) + "a" + repeat(",)", 10000) + " in [] %}{% endfor %}",
  };
  for (const std::string& source : deep)
    EXPECT_TRUE(run(source).starts_with("t:1: ")) << source.substr(0, 40) << ": " << run(source);
  // What is flat, not deep, has no such bound.
  EXPECT_EQ(run("{{ 1" + repeat(" ~ 1", 10000) + " }}"), "text of 10001");
  EXPECT_EQ(run("{{ [1" + repeat(", 1", 10000) + "]|length }}"), "text of 5");
  EXPECT_EQ(run("{% if 0 %}" + repeat("{% elif 0 %}", 10000) + "{% else %}x{% endif %}"), "text of 1");
  EXPECT_EQ(run(repeat("{{ 1 }}", 10000)), "text of 10000");
  // And what people write still works.
  EXPECT_EQ(run("{{ " + repeat("(", 60) + "1" + repeat(")", 60) + " }}"), "text of 1");
  EXPECT_EQ(run("{{ 'a'" + repeat(" + 'a'", 150) + " }}"), "text of 151");
  EXPECT_EQ(run(repeat("{% if 1 %}", 50) + "x" + repeat("{% endif %}", 50)), "text of 1");
}

TEST(JinjaLimits, RecursionPeopleUseWorks) {
  EXPECT_EQ(run("{% macro m(n) %}{% if n > 0 %}x{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(50) }}"),
            "text of 50");
}

TEST(JinjaLimits, RingsOfValuesAreFreed) {
  // Run under LeakSanitizer: macros, namespaces and loops that hold themselves.
  EXPECT_EQ(run("{% set ns = namespace() %}{% set ns.self = ns %}{% set ns.list = [ns, {'a': ns}] %}x"),
            "text of 1");
  EXPECT_EQ(run("{% macro m() %}{{ m is defined }}{% endmacro %}{% set k = m %}{% for i in range(3) %}{% "
                "macro n() %}{{ k }}{% endmacro %}"
                "{% set z = n %}{% endfor %}x"),
            "text of 1");
  EXPECT_EQ(run("{% for i in range(2) %}{% set a = loop.changed([loop]) %}{% endfor %}x"), "text of 1");
  EXPECT_EQ(run("{% set ns = namespace() %}{% for i in [1] recursive %}{% set ns.l = loop %}{% endfor %}x"),
            "text of 1");
  EXPECT_EQ(run("{% set ns = namespace() %}{% set ns.g = [ns]|map('string') %}{% set ns.c = cycler(ns, ns.g) "
                "%}{% set ns.f = ns.c.next %}x"),
            "text of 1");
}

TEST(JinjaLimits, MemoryIsGivenBack) {
  // Far more is made than the limit allows at one time.
  Limits limits;
  limits.max_memory_bytes = 1u << 20;
  EXPECT_EQ(run("{% for i in range(1000) %}{% set x = 'a' * 10000 ~ i %}{% endfor %}x", limits), "text of 1");
}

}  // namespace
}  // namespace triptych::jinja
