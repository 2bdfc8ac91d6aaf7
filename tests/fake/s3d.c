/* An object store on 127.0.0.1 that does wrong on request. Prints its port. Options:
 *	--no-verify     signatures are not checked
 *	--keys A:S[:T]  access key, secret, session token (default test:secret)
 *	--region R      only this region's signatures are right
 *	--page N        objects per page of a listing
 * Faults are set while it runs: GET /-/fault?mode=503&n=2&method=PUT&on=text&skip=1 ; GET /-/stats ; GET /-/reset.
 * It ends when its standard input does, so no test can leave it behind. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>
#include "store/sigv4_int.h"
#include "tests/fake/s3d.h"

struct s3d s3d = { .lock = PTHREAD_MUTEX_INITIALIZER, .access = "test", .secret = "secret", .verify = 1,
                   .page = S3D_PAGE_DEFAULT };

#define HEAD_MAX 65536
#define STALL_S 60

/* ---- pieces of a request and an answer ---- */

char *s3d_head(const struct s3d_req *r, const char *name, char *out, size_t cap)
{
	size_t n = strlen(name);

	for (const char *p = r->head; p && *p; p = strstr(p, "\r\n") ? strstr(p, "\r\n") + 2 : NULL) {
		if (strncasecmp(p, name, n) == 0 && p[n] == ':') {
			p += n + 1;
			p += strspn(p, " ");
			snprintf(out, cap, "%.*s", (int)strcspn(p, "\r"), p);
			return out;
		}
	}
	return NULL;
}

char *s3d_arg(const struct s3d_req *r, const char *name, char *out, size_t cap)
{
	size_t n = strlen(name);

	for (const char *p = r->query; *p; p += strcspn(p, "&"), p += *p == '&') {
		if (strncmp(p, name, n) == 0 && (p[n] == '=' || p[n] == '&' || p[n] == '\0')) {
			struct sky_buf b = SKY_BUF_INIT(65536);
			const char *v = p + n + (p[n] == '=');

			out[0] = '\0';
			if (sky_uri_decode(&b, v, strcspn(v, "&"), NULL) == 0 && b.n < cap) {
				memcpy(out, b.ptr ? b.ptr : "", b.n + 1);
			}
			sky_buf_release(&b);
			return out;
		}
	}
	return NULL;
}

void s3d_add_head(struct s3d_req *r, const char *fmt, ...)
{
	char line[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	(void)!sky_buf_addf(&r->out_head, NULL, "%s\r\n", line);
}

void s3d_text(struct s3d_req *r, int status, const char *fmt, ...)
{
	char text[8192];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	sky_buf_clear(&r->own);
	(void)!sky_buf_adds(&r->own, text, NULL);
	r->status = status;
	r->out = r->own.ptr;
	r->n_out = r->n_length = r->own.n;
}

void s3d_error(struct s3d_req *r, int status, const char *code)
{
	s3d_text(r, status,
	         "<?xml version=\"1.0\"?>\n<Error><Code>%s</Code><Message>made by the test server</Message></Error>",
	         code);
	s3d_add_head(r, "Content-Type: application/xml");
}

/* ---- signatures ---- */

static int64_t parse_stamp(const char *s)
{
	int f[6];

	if (sscanf(s, "%4d%2d%2dT%2d%2d%2dZ", &f[0], &f[1], &f[2], &f[3], &f[4], &f[5]) != 6) {
		return 0;
	}
	return sky_utc_seconds(f);
}

/* The fields that the client says it signed, in a form that sky_sig_sign takes. */
static int signed_fields(const struct s3d_req *r, char *list, struct sky_heads *h)
{
	char v[8192], *save = NULL;

	for (char *name = strtok_r(list, ";", &save); name; name = strtok_r(NULL, ";", &save)) {
		if (!s3d_head(r, name, v, sizeof(v)) || sky_heads_add(h, NULL, name, "%s", v) < 0) {
			return -1;
		}
	}
	return 0;
}

static const char *hash_problem(const struct s3d_req *r, const char *hash)
{
	uint8_t d[32];
	char hex[65];

	if (strlen(hash) != 64) {
		return NULL;            /* unsigned payloads */
	}
	sky_sha256(r->body ? r->body : "", r->n_body, d);
	sky_hex(d, 32, hex);
	return strcmp(hex, hash) == 0 ? NULL : "XAmzContentSHA256Mismatch";
}

/* NULL when the signature is right, else the error code. */
static const char *check_signature(struct s3d_req *r)
{
	char auth[16384], scope[256] = "", list[1024] = "", want[80] = "", hash[80] = "", date[32] = "",
			  token[9000] = "";
	char region[64] = "", service[32] = "", access[128] = "";
	struct sky_heads heads = { .n = 0 };
	struct sky_buf b = SKY_BUF_INIT(65536), q = SKY_BUF_INIT(65536);
	const char *bad = NULL, *p;
	const char *pairs[16][2];
	char copy[4096], *save = NULL, sig[65] = "";
	struct sky_sig g = {
		.method = r->method, .path = r->path, .heads = &heads, .secret = s3d.secret, .access = s3d.access
	};
	int n = 0;

	if (s3d_is_gs(r)) {
		return NULL;            /* bearer tokens are looked at where they are used */
	}
	if (!s3d_head(r, "authorization", auth, sizeof(auth))) {
		return "AccessDenied";
	}
	g.style = strncmp(auth, "GOOG4", 5) == 0 ? &sky_sig_goog : &sky_sig_aws;
	if (!(p = strstr(auth, "Credential=")) || sscanf(p, "Credential=%127[^/]/%255[^,]", access, scope) != 2 ||
	    !(p = strstr(auth, "SignedHeaders=")) || sscanf(p, "SignedHeaders=%1023[^,]", list) != 1 ||
	    !(p = strstr(auth, "Signature=")) || sscanf(p, "Signature=%79[0-9a-f]", want) != 1 ||
	    sscanf(scope, "%*8[0-9]/%63[^/]/%31[^/]", region, service) != 2) {
		return "AuthorizationHeaderMalformed";
	}
	s3d_head(r, g.style->h_date, date, sizeof(date));
	s3d_head(r, g.style->h_hash, hash, sizeof(hash));
	g.when = parse_stamp(date);
	g.hash = hash;
	g.region = region;
	g.service = service;
	if (strcmp(access, s3d.access) != 0) {
		return "InvalidAccessKeyId";
	}
	s3d_head(r, "x-amz-security-token", token, sizeof(token));
	if (strcmp(token, s3d.token) != 0) {
		return "ExpiredToken";
	}
	if (s3d.region[0] && strcmp(region, s3d.region) != 0) {
		return "AuthorizationHeaderMalformed";
	}
	if ((double)g.when - (sky_wall() + s3d.skew_s) > 900 || (double)g.when - (sky_wall() + s3d.skew_s) < -900) {
		return "RequestTimeTooSkewed";
	}
	if (!strstr(list, "host") || signed_fields(r, list, &heads) < 0) {
		bad = "SignatureDoesNotMatch";
	}
	snprintf(copy, sizeof(copy), "%s", r->query);
	for (char *a = strtok_r(copy, "&", &save); a && n < 16; a = strtok_r(NULL, "&", &save)) {
		static char names[16][256], values[16][2048];

		snprintf(names[n], sizeof(names[n]), "%.*s", (int)strcspn(a, "="), a);
		pairs[n][0] = names[n];
		s3d_arg(r, names[n], values[n], sizeof(values[n]));
		pairs[n][1] = values[n];
		n++;
	}
	if (!bad && (sky_query_build(&q, pairs, n, NULL) < 0 || (g.query = q.ptr ? q.ptr : "", 0) ||
	             sky_sig_sign(&g, &b, sig, NULL) < 0 || strcmp(sig, want) != 0)) {
		bad = "SignatureDoesNotMatch";
	}
	bad = bad ? bad : hash_problem(r, hash);
	sky_heads_release(&heads);
	sky_buf_release(&b);
	sky_buf_release(&q);
	return bad;
}

static void deny(struct s3d_req *r, const char *code)
{
	s3d.n_denied++;
	s3d_error(r,
	          strcmp(code, "ExpiredToken") == 0 || strcmp(code, "AuthorizationHeaderMalformed") == 0 ? 400 : 403,
	          code);
	if (strcmp(code, "AuthorizationHeaderMalformed") == 0) {
		s3d_text(r, 400, "<Error><Code>%s</Code><Message>wrong region</Message><Region>%s</Region></Error>",
		         code, s3d.region);
	}
}

/* ---- faults ---- */

static struct s3d_fault *take_fault(const struct s3d_req *r)
{
	char whole[8300];

	snprintf(whole, sizeof(whole), "%s?%s", r->path, r->query);
	for (int i = 0; i < 8; i++) {
		struct s3d_fault *f = &s3d.faults[i];

		if (f->n > 0 && (!f->method[0] || strcmp(f->method, r->method) == 0) &&
		    (!f->on[0] || strstr(whole, f->on))) {
			if (f->skip > 0) {
				f->skip--;
				continue;
			}
			f->n--;
			return f;
		}
	}
	return NULL;
}

/* Faults instead of the work. 1: answered (or closed). */
static int before_work(struct s3d_req *r, const char *mode)
{
	static const struct { const char *mode; int status; const char *code;
	} plain[] = {
		{ "500", 500, "InternalError" },
		{ "503", 503, "SlowDown" },
		{ "403", 403, "AccessDenied" },
		{ "404", 404, "NoSuchKey" },
		{ "409", 409, "ConditionalRequestConflict" },
		{ "412", 412, "PreconditionFailed" },
		{ "501", 501, "NotImplemented" },
		{ "expired", 400, "ExpiredToken" },
		{ "baddigest", 400, "BadDigest" },
		{ "skew", 403, "RequestTimeTooSkewed" },
		{ "lie", 200, "InternalError" },
		{ "timeout", 400, "RequestTimeout" },
		{ "405", 405, "MethodNotAllowed" },
		{ "nobucket", 404, "NoSuchBucket" },
		{ "nosum", 400, "InvalidRequest" },
	};

	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
		if (strcmp(mode, plain[i].mode) == 0) {
			s3d_error(r, plain[i].status, plain[i].code);
			return 1;
		}
	}
	if (strcmp(mode, "429") == 0) {
		s3d_error(r, 429, "TooManyRequests");
		s3d_add_head(r, "Retry-After: 1");
		return 1;
	}
	if (strcmp(mode, "drop") == 0) {
		r->close = 2;
		return 1;
	}
	if (strcmp(mode, "html") == 0) {
		s3d_text(r, 502, "<html><body>Bad gateway<br></body>");
		return 1;
	}
	if (strncmp(mode, "race", 4) == 0) {    /* another writer gets in just before: "race", or "race:KEY" */
		struct sky_buf key = SKY_BUF_INIT(4096);

		if (mode[4] == ':') {
			s3d_write_object(mode + 5, "rival", 5, "rival", 0);
		} else if (sky_uri_decode(&key, r->path + 1, strlen(r->path + 1), NULL) == 0) {
			s3d_write_object(key.ptr, "rival", 5, "rival", 0);
		}
		sky_buf_release(&key);
	}
	return 0;
}

/* Faults of the answer. */
static void after_work(struct s3d_req *r, const char *mode)
{
	if (strcmp(mode, "reset") == 0) {
		r->close = 2;                                   /* the work is done, its answer lost */
	} else if (strcmp(mode, "short") == 0) {
		r->n_out /= 2;
		r->close = 1;
	} else if (strcmp(mode, "flip") == 0 && r->n_out > 0) {
		char *copy = malloc(r->n_out);

		memcpy(copy, r->out, r->n_out);
		copy[r->n_out / 2] ^= 0x10;
		sky_buf_clear(&r->own);
		r->own.max = r->n_out + 1;
		(void)!sky_buf_add(&r->own, copy, r->n_out, NULL);
		free(copy);
		r->out = r->own.ptr;
	}
}

/* ---- one connection ---- */

static int send_all(int fd, const char *p, uint64_t n)
{
	while (n > 0) {
		ssize_t k = send(fd, p, n < 1u << 20 ? n : 1u << 20, MSG_NOSIGNAL);

		if (k <= 0) {
			return -1;
		}
		p += k;
		n -= (uint64_t)k;
	}
	return 0;
}

static int answer(struct s3d_req *r)
{
	static const char *const days[] = { "Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed" };
	static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
	struct sky_buf b = SKY_BUF_INIT(1u << 20);
	int64_t now = (int64_t)(sky_wall() + s3d.skew_s);
	int f[6], rc, head_only = strcmp(r->method, "HEAD") == 0;

	sky_utc_fields(now, f);
	rc = sky_buf_addf(
		&b, NULL,
		"HTTP/1.1 %d Answer\r\nDate: %s, %02d %.3s %04d %02d:%02d:%02d GMT\r\nContent-Length: %llu\r\n"
		"%s%s\r\n",
		r->status, days[now / 86400 % 7], f[2], months + 3 * (f[1] - 1), f[0], f[3], f[4], f[5],
		(unsigned long long)r->n_length, r->close ? "Connection: close\r\n" : "",
		r->out_head.ptr ? r->out_head.ptr : "");
	rc = rc < 0 ? rc : send_all(r->fd, b.ptr, b.n);
	if (rc == 0 && !head_only) {
		rc = send_all(r->fd, r->out, r->n_out);
	}
	sky_buf_release(&b);
	return rc;
}

static void stall(int fd)
{
	struct pollfd pf = { .fd = fd, .events = POLLRDHUP };

	poll(&pf, 1, STALL_S * 1000);           /* until the client has had enough */
}

/* BUCKET.localhost: the bucket stands in the host name; from here on it is in the path. */
static void move_bucket(struct s3d_req *r, const char *host)
{
	const char *dot = strstr(host, ".localhost");
	char path[sizeof(r->path)];

	if (dot) {
		snprintf(path, sizeof(path), "/%.*s%.3700s", (int)(dot - host), host, r->path);
		memcpy(r->path, path, sizeof(path));
	}
}

static int handle(struct s3d_req *r)
{
	char mode[24] = "";
	struct s3d_fault *f;
	const char *bad;

	char host[256] = "";

	pthread_mutex_lock(&s3d.lock);
	if (!s3d_side_door(r)) {
		s3d.n_request++;
		f = take_fault(r);
		snprintf(mode, sizeof(mode), "%s", f ? f->mode : "");
		bad = s3d.verify ? check_signature(r) : NULL;
		if (!before_work(r, mode)) {
			if (bad) {
				deny(r, bad);
			} else if (strcmp(mode, "stall") != 0) {
				s3d_head(r, "host", host, sizeof(host));
				move_bucket(r, host);
				s3d_serve(r);
			}
			after_work(r, mode);
		}
	}
	pthread_mutex_unlock(&s3d.lock);
	if (strcmp(mode, "slow") == 0) {
		usleep(300000);
	}
	if (strcmp(mode, "stall") == 0) {
		stall(r->fd);
		return -1;
	}
	return r->close == 2 ? -1 : answer(r) < 0 || r->close ? -1 : 0;
}

static int read_head(int fd, char *buf, size_t *n_p, size_t *n_head_p)
{
	char *end;

	while (!(buf[*n_p] = '\0', end = strstr(buf, "\r\n\r\n"))) {
		ssize_t k = *n_p < HEAD_MAX - 1 ? recv(fd, buf + *n_p, HEAD_MAX - 1 - *n_p, 0) : -1;

		if (k <= 0) {
			return -1;
		}
		*n_p += (size_t)k;
	}
	*n_head_p = (size_t)(end + 4 - buf);
	return 0;
}

static int read_body(struct s3d_req *r, char *buf, size_t *n_p, size_t n_head)
{
	char v[64];
	uint64_t n = s3d_head(r, "content-length", v, sizeof(v)) ? strtoull(v, NULL, 10) : 0, have;

	if (s3d_head(r, "expect", v, sizeof(v)) && send_all(r->fd, "HTTP/1.1 100 Continue\r\n\r\n", 25) < 0) {
		return -1;
	}
	if (n > (4ull << 30)) {
		return -1;
	}
	r->body = malloc(n + 1);
	have = *n_p - n_head < n ? *n_p - n_head : n;
	memcpy(r->body, buf + n_head, have);
	memmove(buf, buf + n_head + have, *n_p - n_head - have);
	*n_p -= n_head + have;
	r->n_body = n;
	while (have < n) {
		ssize_t k = recv(r->fd, r->body + have, n - have < 4u << 20 ? n - have : 4u << 20, 0);

		if (k <= 0) {
			return -1;
		}
		have += (uint64_t)k;
	}
	r->body[n] = '\0';
	return 0;
}

static int parse_head(struct s3d_req *r, char *buf, size_t n_head)
{
	char target[8192];
	char *q;

	if (sscanf(buf, "%15s %8191s", r->method, target) != 2 || !strstr(buf, "\r\n")) {
		return -1;
	}
	q = strchr(target, '?');
	snprintf(r->query, sizeof(r->query), "%s", q ? q + 1 : "");
	if (q) {
		*q = '\0';
	}
	snprintf(r->path, sizeof(r->path), "%.4000s", target);
	q = strstr(buf, "\r\n") + 2;
	r->close = strcasestr(buf, "\r\nconnection: close\r\n") != NULL;
	r->head = strndup(q, (size_t)(buf + n_head - 2 - q));
	return 0;
}

static void *connection(void *arg)
{
	int fd = (int)(intptr_t)arg, one = 1, rc = 0;
	char *buf = malloc(HEAD_MAX);
	size_t n = 0, n_head;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	while (rc == 0 && read_head(fd, buf, &n, &n_head) == 0) {
		struct s3d_req r = {
			.fd = fd, .out_head = SKY_BUF_INIT(65536), .own = SKY_BUF_INIT(64u << 20), .out = ""
		};

		rc = parse_head(&r, buf, n_head);
		rc = rc < 0 ? rc : read_body(&r, buf, &n, n_head);
		rc = rc < 0 ? rc : handle(&r);
		free(r.head);
		free(r.body);
		sky_buf_release(&r.out_head);
		sky_buf_release(&r.own);
	}
	free(buf);
	close(fd);
	return NULL;
}

static void *watch_stdin(void *arg)
{
	char c[64];

	(void)arg;
	while (read(0, c, sizeof(c)) > 0) {
		;
	}
	_exit(0);
}

static void options(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const char *v = i + 1 < argc ? argv[i + 1] : "";

		if (strcmp(argv[i], "--no-verify") == 0) {
			s3d.verify = 0;
			continue;
		}
		if (strcmp(argv[i], "--keys") == 0) {
			sscanf(v, "%63[^:]:%63[^:]:%63s", s3d.access, s3d.secret, s3d.token);
		} else if (strcmp(argv[i], "--region") == 0) {
			snprintf(s3d.region, sizeof(s3d.region), "%s", v);
		} else if (strcmp(argv[i], "--page") == 0) {
			s3d.page = (int)strtol(v, NULL, 10);
		} else {
			fprintf(stderr, "s3d: unknown option %s\n", argv[i]);
			exit(2);
		}
		i++;
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	pthread_attr_t attr;
	pthread_t t;

	options(argc, argv);
	if (s < 0 || bind(s, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(s, 512) < 0 ||
	    getsockname(s, (struct sockaddr *)&a, &n) < 0) {
		perror("s3d");
		return 1;
	}
	printf("%d\n", ntohs(a.sin_port));
	fflush(stdout);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, 1u << 20);
	pthread_create(&t, &attr, watch_stdin, NULL);
	for (;;) {
		int fd = accept(s, NULL, NULL);

		if (fd >= 0 && pthread_create(&t, &attr, connection, (void *)(intptr_t)fd) != 0) {
			close(fd);
		}
	}
}
