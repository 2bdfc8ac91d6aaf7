/* skyrl-pretok: corpus → token dataset, and everything that looks at token datasets.
 *
 *	skyrl-pretok --tokenizer Qwen3-0.6B -o out/train chats.jsonl.zst
 *
 * pretok_run.c is the pipeline, pretok_job.c what surrounds it, pretok_row.c one row,
 * pretok_store.c and its neighbours the subcommands. */
#include "cmd/pretok_int.h"
#include "cmd/storeopt.h"

struct pretok_opt pt;

#define ROW_TOKENIZER OPT_DIR('t', "tokenizer", &pt.tokenizer, "DIR", NULL, \
		"tokenizer.json, model directory or .tiktoken file")
#define ROW_NO_SPECIAL OPT_FLAG(0, "no-special-tokens", &pt.no_special, NULL, \
	"special tokens that stand in the text are ordinary text")
#define ROWS_TEMPLATE \
	OPT_FILE(0, "chat-template", &pt.chat_template, "FILE", NULL, "Jinja template instead of the model's own"), \
	OPT_TEXTS(0, "template-arg", &pt.template_arg, "NAME=VALUE", "variable for the template, JSON or text; may be repeated"), \
	OPT_TEXT(0, "date", &pt.date, "YYYY-MM-DD", NULL, "day for templates that print one (without it: today)"), \
	OPT_TEXT(0, "train-on", &pt.train_on, "WHAT", "last-assistant", \
		"last-assistant, all-assistant, last-run, all, completion, roles:A,B or parts:A,B")
#define ROWS_COLUMNS \
	OPT_TEXT(0, "schema", &pt.schema, "NAME", "auto", \
		"auto, text, messages, sharegpt, alpaca, prompt-completion, segments or tokens"), \
	OPT_TEXT(0, "text-key", &pt.text_key, "NAME", "text", "column of texts"), \
	OPT_TEXT(0, "messages-key", &pt.messages_key, "NAME", "messages", "column of conversations"), \
	OPT_TEXT(0, "tools-key", &pt.tools_key, "NAME", "tools", "column of tool definitions"), \
	OPT_TEXT(0, "system-key", &pt.system_key, "NAME", "system", "column of a system text"), \
	OPT_TEXTS(0, "map", &pt.map, "FROM=TO", "read column FROM where TO is looked for; may be repeated"), \
	OPT_TEXTS(0, "role", &pt.role, "FROM=TO", "read role FROM as TO; may be repeated"), \
	OPT_FLAG(0, "keep-nulls", &pt.keep_nulls, NULL, "keep null members of Arrow and Parquet rows (tool definitions)"), \
	OPT_FLAG(0, "arguments-as-text", &pt.arguments_as_text, NULL, "tool-call arguments as JSON text, not as objects"), \
	OPT_CHOICE(0, "invalid-utf8", &pt.invalid_utf8, "error|replace|skip", "error", "invalid UTF-8 and lone surrogates"), \
	OPT_SIZE(0, "max-line", &pt.max_line, "SIZE", "256MiB", "longest row", .min = 1)

static const struct opt_row rows[] = {
	OPT_HEAD("Input"),
	ROW_TOKENIZER,
	OPT_TEXT(0, "input-format", &pt.format, "NAME", "auto", "auto, jsonl, json, text, lines, parquet, arrow or tar"),
	ROWS_COLUMNS,
	OPT_COUNT(0, "long", &pt.zstd_long, "LOG", "27", "largest zstd window, as a power of two", .min = 10, .max = 31),
	OPT_TABLE(cmd_store_rows),
	OPT_HEAD("Tokens and masks"),
	ROWS_TEMPLATE,
	OPT_COUNT(0, "max-length", &pt.max_length, "N", "0", "longest row in tokens, 0 for no limit"),
	OPT_CHOICE(0, "overlong", &pt.overlong, "right|left|drop|split|error", "right",
		"a longer row loses its right or left end, is dropped, split, or an error"),
	OPT_COUNT(0, "min-trained", &pt.min_trained, "N", "1", "fewest trained tokens of a row that has a mask"),
	OPT_FLAG(0, "append-eod", &pt.append_eod, NULL, "end every row with the end-of-document token"),
	OPT_TEXT(0, "eod-token", &pt.eod_token, "TEXT", NULL,
			"end-of-document token (without it: the tokenizer's eos_token)"),
	OPT_CHOICE(0, "bos", &pt.bos, "none|auto|always", "none",
			"begin plain texts with bos_token: auto where there is one"),
	ROW_NO_SPECIAL,
	OPT_COUNT(0, "vocab-size", &pt.vocab_size, "N", "0", "vocabulary when no tokenizer is given (--schema tokens)"),
	OPT_HEAD("Bad and empty rows"),
	OPT_TEXT(0, "on-error", &pt.on_error, "HOW", "fail", "fail, skip or quarantine=FILE"),
	OPT_TEXT(0, "max-errors", &pt.max_errors, "N|P%", NULL, "more bad rows than that are an error after all"),
	OPT_CHOICE(0, "lost", &pt.lost, "warn|reject|allow", "warn",
		"trained messages whose content, reasoning or tool calls the template does not print"),
	OPT_CHOICE(0, "empty", &pt.empty, "skip|keep|error", "skip", "rows without text"),
	OPT_HEAD("Output"),
	CMD_OPT_OUTPUT("PREFIX", "token dataset to write"),
	CMD_OPT_FORCE,
	OPT_CHOICE(0, "dtype", &pt.dtype, "auto|u16|u32", "auto", "width of an id; auto: 16 bits when the vocabulary fits"),
	OPT_FLAG(0, "resume", &pt.resume, NULL, "go on with what an interrupted run left", .flags = OPT_NO_ENV | OPT_NO_CONF),
	OPT_COUNT(0, "checkpoint-every", &pt.checkpoint_every, "N", "64M",
			"tokens between points that --resume can go back to", .min = 1),
	OPT_TEXT(0, "worker", &pt.worker, "I/N", NULL,
		"this share of the input, to PREFIX-I-of-N (without it: from a Slurm array or MPI)", .flags = OPT_NO_CONF),
	CMD_OPT_THREADS,
	CMD_OPT_JSON,
	OPT_END
};

const struct opt_row pretok_encode_rows[] = {
	OPT_HEAD("Options"),
	ROW_TOKENIZER,
	OPT_FLAG(0, "special", &pt.special, NULL, "run the post-processor, which adds tokens such as a beginning"),
	ROW_NO_SPECIAL,
	OPT_FLAG(0, "raw", &pt.raw, NULL, "all of the input is one text"),
	OPT_SIZE(0, "max-line", &pt.max_line, "SIZE", "256MiB", "longest line", .min = 1),
	OPT_END
};

const struct opt_row pretok_decode_rows[] = {
	OPT_HEAD("Options"),
	ROW_TOKENIZER,
	OPT_FLAG(0, "skip-special", &pt.skip_special, NULL, "leave special tokens out"),
	OPT_FLAG(0, "raw", &pt.raw, NULL, "print bare text instead of JSON strings"),
	OPT_SIZE(0, "max-line", &pt.max_line, "SIZE", "256MiB", "longest line", .min = 1),
	OPT_END
};

const struct opt_row pretok_render_rows[] = {
	OPT_HEAD("Options"),
	ROW_TOKENIZER,
	ROWS_TEMPLATE,
	OPT_FLAG(0, "add-generation-prompt", &pt.generation_prompt, NULL, "end with the header of an answer"),
	ROWS_COLUMNS,
	OPT_END
};

const struct opt_row pretok_store_rows[] = {
	OPT_HEAD("Options"),
	ROW_TOKENIZER,
	CMD_OPT_JSON,
	OPT_END
};

static const struct cmd_sub subs[] = {
	{ "verify", "check every promise of token datasets", "[--tokenizer DIR] PREFIX…", "skyrl-pretok verify out/train",
	  pretok_store_rows, pretok_verify, 0, NULL },
	{ "stats", "counts and lengths of a token dataset", "[--json] PREFIX", "skyrl-pretok stats out/train",
	  pretok_store_rows, pretok_stats, 0, NULL },
	{ "cat", "rows as NDJSON or readable text", "[--rows A:B] [--decode|--show] PREFIX",
	  "skyrl-pretok cat --show --tokenizer DIR --rows 0:3 out/train", pretok_cat_rows, pretok_cat, 0, NULL },
	{ "merge", "token datasets one behind the other", "-o PREFIX PREFIX…",
	  "skyrl-pretok merge -o out/train out/train-*-of-00004.json", pretok_merge_rows, pretok_merge, CMD_STOP_SOFT, NULL },
	{ "split", "parts of a token dataset", "-o PREFIX --parts N|--fraction X PREFIX",
	  "skyrl-pretok split --fraction 0.99 -o out/part out/all", pretok_split_rows, pretok_split, CMD_STOP_SOFT, NULL },
	{ "sample", "rows of a token dataset by lot", "-o PREFIX --count N|--fraction X PREFIX",
	  "skyrl-pretok sample --count 1000 --seed 1 -o out/few out/all", pretok_sample_rows, pretok_sample,
			CMD_STOP_SOFT, NULL },
	{ "shuffle", "the rows in another order", "-o PREFIX PREFIX", "skyrl-pretok shuffle --seed 1 -o out/mixed out/all",
	  pretok_shuffle_rows, pretok_shuffle, CMD_STOP_SOFT, NULL },
	{ "dedup", "each row once", "-o PREFIX PREFIX…", "skyrl-pretok dedup -o out/once out/all", pretok_dedup_rows,
	  pretok_dedup, CMD_STOP_SOFT, NULL },
	{ "convert", "token sets from and to other formats", "--to FORMAT -o OUT IN",
	  "skyrl-pretok convert --to arrow -o out/skyrl out/train", pretok_convert_rows, pretok_convert, CMD_STOP_SOFT,
			NULL },
	{ "encode", "JSON strings to ids", "--tokenizer DIR [FILE…]",
			"echo '\"Hello\"' | skyrl-pretok encode --tokenizer DIR",
	  pretok_encode_rows, pretok_encode, CMD_STDIN, NULL },
	{ "decode", "ids to JSON strings", "--tokenizer DIR [FILE…]", "echo '[1,2]' | skyrl-pretok decode --tokenizer DIR",
	  pretok_decode_rows, pretok_decode, CMD_STDIN, NULL },
	{ "render", "conversations to text with trained spans", "--tokenizer DIR [CHATS.jsonl…]",
	  "skyrl-pretok render --tokenizer DIR chats.jsonl", pretok_render_rows, pretok_render, CMD_STDIN, NULL },
	{ 0 }
};

const struct cmd_prog cmd_prog = {
	.name = "skyrl-pretok",
	.title = "turn a corpus into a token dataset",
	.usage = "--tokenizer DIR -o PREFIX [OPTION]… "
			"[INPUT…]\nverify|stats|cat|merge|split|sample|shuffle|dedup|convert|encode|decode|render …",
	.example = "skyrl-pretok --tokenizer Qwen3-0.6B -o out/train chats.jsonl.zst",
	.rows = rows,
	.subs = subs,
	.run = pretok_run,
	.flags = CMD_NEEDS_ARGS | CMD_STDIN | CMD_STOP_SOFT,
};
