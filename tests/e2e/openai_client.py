"""The official Python client of OpenAI against `triptych serve`: openai_client.py URL PICTURE. Prints what it did."""
import base64
import json
import sys

import openai

url, picture = sys.argv[1:3]
client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120)
data = "data:image/png;base64," + base64.b64encode(open(picture, "rb").read()).decode()
answer = ("a small purple circle at the top left, a small orange square at the top right, a small yellow square at the left "
          "and a small blue triangle at the bottom")
model = client.models.list().data[0].id
assert client.models.retrieve("scenes-llava").id == "scenes-llava"
messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": data}},
                                         {"type": "text", "text": "Describe the image."}]}]

chat = client.chat.completions.create(model=model, messages=messages, temperature=0, logprobs=True, top_logprobs=2)
assert chat.choices[0].message.content == answer, chat
assert chat.choices[0].finish_reason == "stop"
assert chat.usage.total_tokens == chat.usage.prompt_tokens + chat.usage.completion_tokens
assert len(chat.choices[0].logprobs.content) >= chat.usage.completion_tokens
assert "".join(t.token for t in chat.choices[0].logprobs.content).strip().startswith("a small purple")

text, usage = "", None
for chunk in client.chat.completions.create(model=model, messages=messages, temperature=0, stream=True,
                                            stream_options={"include_usage": True}):
    usage = chunk.usage or usage
    if chunk.choices:
        text += chunk.choices[0].delta.content or ""
assert text == answer, text
assert usage.completion_tokens == chat.usage.completion_tokens

schema = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"],
          "additionalProperties": False}
held = client.chat.completions.create(model=model, messages=messages, n=2, seed=1, temperature=1, response_format={
    "type": "json_schema", "json_schema": {"name": "colour", "schema": schema}})
assert all(json.loads(c.message.content)["colour"] in ("red", "blue") for c in held.choices) and len(held.choices) == 2

done = client.completions.create(model=model, prompt=["USER: Hi ASSISTANT:"], max_tokens=3, temperature=0, logprobs=1)
assert len(done.choices[0].logprobs.tokens) >= done.usage.completion_tokens > 0, done

inputs = [{"role": "user", "content": [{"type": "input_image", "image_url": data, "detail": "auto"},
                                       {"type": "input_text", "text": "Describe the image."}]}]
assert client.responses.create(model=model, input=inputs, temperature=0).output_text == answer
with client.responses.stream(model=model, input=inputs, temperature=0) as stream:
    events = [event.type for event in stream]
    assert stream.get_final_response().output_text == answer
assert events[0] == "response.created" and events[-1] == "response.completed", events

for expected, call in [
    (openai.NotFoundError, lambda: client.chat.completions.create(model="gpt-4o", messages=messages)),
    (openai.BadRequestError, lambda: client.chat.completions.create(model=model, messages=[])),
    (openai.BadRequestError, lambda: client.chat.completions.create(model=model, messages=messages, temperature=-1)),
]:
    try:
        call()
    except expected as error:
        assert error.body["message"] and error.body["param"], error.body
    else:
        raise AssertionError(f"{expected.__name__} was expected")
assert client.chat.completions.create(model=model, messages=messages, temperature=0).choices[0].message.content == answer
print(f"openai {openai.__version__}: chat, stream, schema, completion, responses and errors as expected")
