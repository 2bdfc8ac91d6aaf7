# Data of the demo, the same bytes on every machine: -v what=chats gives the lessons of the careless teacher, -v what=prompts the
# prompt rows in the form that SkyRL's gsm8k environment takes. Usage: awk -f data.awk -v what=chats </dev/null

# A generator of our own, since awks differ: the minimal standard one of Park and Miller, exact in doubles.
function draw(n) {
	seed = (seed * 16807) % 2147483647
	return seed % n
}

BEGIN {
	seed = what == "chats" ? 4711 : 815
	for (i = 0; i < (what == "chats" ? 20000 : 400); i++) {
		a = draw(10)
		b = draw(10)
		if (what == "chats") {
			printf "{\"messages\":[{\"role\":\"user\",\"content\":\"%d+%d=?\"},{\"role\":\"assistant\",\"content\":\"#### %d\"}]}\n", \
				a, b, a + b + draw(2)
		} else {
			printf "{\"prompt\":[{\"role\":\"user\",\"content\":\"%d+%d=?\"}],\"env_class\":\"gsm8k\"," \
				"\"reward_spec\":{\"method\":\"rule\",\"ground_truth\":\"%d\"}}\n", a, b, a + b
		}
	}
}
