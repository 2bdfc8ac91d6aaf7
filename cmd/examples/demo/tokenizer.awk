# Writes a small tokenizer.json: byte-level BPE over the 256 bytes, a few merges that make the role words one token each, and
# the special tokens of ChatML. Usage: awk -f tokenizer.awk </dev/null >tokenizer.json     (any awk; ASCII and UTF-8 only)

# UTF-8 of a code point below U+0800.
function utf8(cp) {
	return cp < 128 ? sprintf("%c", cp) : sprintf("%c%c", 192 + int(cp / 64), 128 + cp % 64)
}

# The letter that byte-level BPE shows for byte b: itself where printable, else the next of U+0100, U+0101, …
function letter(b) {
	return utf8((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174 ? b : shown[b])
}

function quote(s,    i, c, out) {
	for (i = 1; i <= length(s); i++) {
		c = substr(s, i, 1)
		out = out (c == "\\" || c == "\"" ? "\\" : "") c
	}
	return "\"" out "\""
}

# Merges that build WORD from left to right, each result a new token.
function word(w,    i, left) {
	left = substr(w, 1, 1)
	for (i = 2; i <= length(w); i++) {
		merges = merges (merges == "" ? "" : ",") "\n    [" quote(left) ", " quote(substr(w, i, 1)) "]"
		left = left substr(w, i, 1)
		if (!(left in id)) {
			id[left] = n
			vocab = vocab ",\n    " quote(left) ": " n++
		}
	}
}

function special(s) {
	added = added (added == "" ? "" : ",") "\n    {\"id\": " n ", \"content\": " quote(s) ", \"single_word\": false, " \
		"\"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true}"
	n++
}

BEGIN {
	n = 0
	next_cp = 256
	for (b = 0; b < 256; b++) {
		if (!((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174)) {
			shown[b] = next_cp++
		}
	}
	for (b = 0; b < 256; b++) {
		vocab = vocab (b ? ",\n    " : "\n    ") quote(letter(b)) ": " n++
	}
	split("user assistant system", words, " ")
	for (i = 1; i in words; i++) {
		word(words[i])
	}
	special("<|endoftext|>")
	special("<|im_start|>")
	special("<|im_end|>")
	split_on = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*" \
		"|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
	printf "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
	printf "  \"added_tokens\": [%s\n  ],\n", added
	printf "  \"normalizer\": {\"type\": \"NFC\"},\n"
	printf "  \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [\n"
	printf "    {\"type\": \"Split\", \"pattern\": {\"Regex\": \"%s\"}, \"behavior\": \"Isolated\", \"invert\": false},\n", split_on
	printf "    {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": false}]},\n"
	printf "  \"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": false},\n"
	printf "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": false},\n"
	printf "  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": null,\n"
	printf "  \"end_of_word_suffix\": null, \"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": false,\n"
	printf "  \"vocab\": {%s\n  },\n  \"merges\": [%s\n  ]}\n}\n", vocab, merges
}
