#!/usr/bin/env python3
"""An environment for skyrl-rollout in Python: guess a number, several turns, feedback after each.

    skyrl-rollout --model DIR --prompts rows.jsonl --env-cmd 'python3 env_guess.py' --max-turns 4 -o out

The protocol is skyrl-env(7): one JSON object a line on standard input, one answer a line on standard output. A row holds the
number under reward_spec.ground_truth; the reward is 1 for the right number, 0.1 for any number, and 0 for none.
"""
import json
import re
import sys

PROMPT = "I think of a number between 1 and 20. Guess it."


def step(episode, action):
    found = re.search(r"-?\d+", action)
    episode["turns"] += 1
    if found is None:
        reward, text = 0.0, "I see no number. Try again."
    else:
        guess = int(found.group())
        reward = 1.0 if guess == episode["number"] else 0.1
        text = "Too low." if guess < episode["number"] else "Too high."
    done = reward == 1.0 or episode["turns"] >= episode["max_turns"]
    return {"obs": [] if done else [{"role": "user", "content": text}], "reward": reward, "done": done,
            "info": {"turns": episode["turns"]}}


def main():
    episodes = {}
    for line in sys.stdin:
        call = json.loads(line)
        key, answer = call["id"], None
        if call["op"] == "init":
            row = call["row"]
            episodes[key] = {"number": int(row["reward_spec"]["ground_truth"]), "turns": 0, "max_turns": row.get("max_turns", 4)}
            answer = {"prompt": row.get("prompt") or [{"role": "user", "content": PROMPT}]}
        elif call["op"] == "step":
            answer = step(episodes[key], call["action"])
        else:
            episodes.pop(key, None)
        if answer is not None:
            print(json.dumps({"id": key, **answer}), flush=True)


main()
