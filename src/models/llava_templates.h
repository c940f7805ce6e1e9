// Conversations as LLaVA's published models were trained with them, for directories without a template of
// their own. Reference: llava/conversation.py of the original repository ("llava_v1", "mistral_instruct").
#pragma once

#include <string_view>

namespace triptych {

inline constexpr std::string_view kVicunaTemplate =
    "{% if messages[0]['role'] != 'system' %}{{ 'A chat between a curious human and an artificial "
    "intelligence assistant. The "
    "assistant gives helpful, detailed, and polite answers to the human\\'s questions. ' }}{% endif %}"
    "{% for message in messages %}{% if message['role'] == 'system' %}{{ message['content'][0]['text'] + ' ' "
    "}}{% else %}"
    "{{ message['role'].upper() + ': ' }}"
    "{% for content in message['content'] %}{% if content['type'] == 'image' %}{{ '<image>\n' }}{% else %}{{ "
    "content['text'] }}{% endif %}"
    "{% endfor %}{{ '</s>' if message['role'] == 'assistant' else ' ' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}";

inline constexpr std::string_view kMistralTemplate =
    "{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' }}"
    "{% for content in message['content'] %}{% if content['type'] == 'image' %}{{ '<image>\n' }}{% else %}{{ "
    "content['text'] }}{% endif %}"
    "{% endfor %}{{ ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' ' }}{% for content in message['content'] %}{{ "
    "content['text'] }}{% endfor %}{{ '</s>' }}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}";

}  // namespace triptych
