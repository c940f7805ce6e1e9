// What a ChatTemplate holds; shared by chat_template.cc and chat_template_files.cc.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/ast.h"
#include "text/chat_template.h"

namespace triptych {

struct ChatTemplate::Impl {
  struct Named {
    std::string name;
    std::shared_ptr<const jinja::Program> program;
    Capabilities can;
  };
  /// One, or several of which one is called "default".
  std::vector<Named> templates;

  void add(std::string_view name, std::string_view source, std::string_view file);
  const Named* find(std::string_view name) const;
  const Named& choose(bool has_tools) const;
};

}  // namespace triptych
