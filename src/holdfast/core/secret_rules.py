"""The table of secrets that can be told by their shape. Data only: it searches nothing and replaces nothing.

A token rule is `head` + at least `least` characters of `chars` + `tail`; only the token is replaced.
A phrase rule is a whole pattern (RE2, bytes); only its groups are replaced, so user names and hosts stay.
"""

from __future__ import annotations

from holdfast.core.named import NamedTuple

WORD = "A-Za-z0-9"
SLUG = "A-Za-z0-9_-"
HEX = "0-9a-f"
ANY_TOKEN = "A-Za-z0-9%.+/=_~-"  # noqa: S105 - every character that any rule below allows in a token

# Text inside a JSON string inside text shows its line ends as \n, so an `n` may stand directly before a token.
EDGE = r"(?:^|[^A-Za-z0-9_-]|\\[nrt])"
GAP = r"(?:\s|\\+[nrt])"
# A trigger also looks at raw JSON bytes, where any character may be written as an escape.
RAW_EDGE = r"(?:^|[^A-Za-z0-9_-]|\\[nrtbf]|\\u[0-9a-fA-F]{4})"


class TokenRule(NamedTuple):
    kind: str
    heads: tuple[str, ...]
    chars: str
    least: int
    tail: str = ""
    edge: bool = False


class PhraseRule(NamedTuple):
    kind: str
    trigger: str
    pattern: str
    heads: tuple[str, ...] = ()
    check: str = ""
    to_quote: bool = False  # one argument of a command: where it is quoted it ends with its quote, blanks and all


TOKENS: tuple[TokenRule, ...] = (
    TokenRule("aws_access_key_id", ("AKIA", "ASIA", "ABIA", "ACCA"), "A-Z0-9", 16, r"\b", edge=True),
    TokenRule("github_token", ("ghp_",), WORD, 20),
    TokenRule("github_fine_grained", ("github_pat_",), "A-Za-z0-9_", 22),
    TokenRule("github_oauth", ("gho_",), WORD, 20),
    TokenRule("github_app", ("ghu_", "ghs_"), WORD, 30),
    TokenRule("github_refresh", ("ghr_",), WORD, 20),
    TokenRule(
        "gitlab_token",
        (
            "glpat-",
            "gldt-",
            "glrt-",
            "glrtr-",
            "glcbt-",
            "glptt-",
            "glft-",
            "glsoat-",
            "glimt-",
            "glagent-",
            "glffct-",
            "gloas-",
        ),
        "A-Za-z0-9_.=-",
        18,
    ),
    TokenRule(
        "slack_token",
        ("xoxa-", "xoxb-", "xoxe-", "xoxe.xox", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xoxc-", "xoxd-", "xapp-"),
        "A-Za-z0-9%.-",
        10,
    ),
    TokenRule("stripe_key", ("sk_live_", "sk_test_", "rk_live_", "rk_test_"), WORD, 10),
    TokenRule("webhook_secret", ("whsec_",), "A-Za-z0-9+/=", 20),
    TokenRule("anthropic_key", ("sk-ant-",), SLUG, 16),
    TokenRule("openrouter_key", ("sk-or-",), SLUG, 20),
    TokenRule("openai_key", ("sk-proj-", "sk-svcacct-", "sk-admin-", "sk-None-"), SLUG, 20),
    TokenRule("openai_key", ("sk-",), WORD, 20, edge=True),
    TokenRule("google_api_key", ("AIza",), SLUG, 30, edge=True),
    TokenRule("google_oauth_secret", ("GOCSPX-",), SLUG, 20),
    TokenRule("google_oauth_token", ("ya29.",), "A-Za-z0-9_.-", 20),
    TokenRule("google_refresh_token", ("1//0",), SLUG, 30, edge=True),
    TokenRule("npm_token", ("npm_",), WORD, 30),
    TokenRule("pypi_token", ("pypi-Ag",), SLUG, 30),
    TokenRule("sendgrid_key", ("SG.",), SLUG, 16, r"\.[A-Za-z0-9_-]{16,}", edge=True),
    TokenRule("twilio_key", ("SK",), HEX, 32, r"\b", edge=True),
    TokenRule("huggingface_token", ("hf_", "api_org_"), WORD, 30),
    TokenRule("digitalocean_token", ("dop_v1_", "doo_v1_", "dor_v1_"), HEX, 40),
    TokenRule("databricks_token", ("dapi",), HEX, 32, r"(?:-[0-9])?\b", edge=True),
    TokenRule("mailgun_key", ("key-",), HEX, 32, r"\b", edge=True),
    TokenRule("square_token", ("sq0atp-", "sq0csp-", "sq0idp-"), SLUG, 22),
    TokenRule("shopify_token", ("shpat_", "shpca_", "shppa_", "shpss_"), "0-9a-fA-F", 32),
    TokenRule("vault_token", ("hvs.", "hvb.", "hvr."), SLUG, 20),
    TokenRule(
        "doppler_token",
        ("dp.pt.", "dp.st.", "dp.ct.", "dp.sa.", "dp.scim.", "dp.audit."),
        "A-Za-z0-9_.-",
        20,
    ),
    TokenRule("linear_key", ("lin_api_", "lin_oauth_"), WORD, 30),
    TokenRule("notion_token", ("ntn_", "secret_"), WORD, 40),
    TokenRule("docker_token", ("dckr_pat_", "dckr_oat_"), SLUG, 20),
    TokenRule("atlassian_token", ("ATATT3", "ATCTT3", "ATSTT3"), "A-Za-z0-9_=-", 40),
    TokenRule("bitbucket_token", ("ATBB",), WORD, 24, edge=True),
    TokenRule("age_secret_key", ("AGE-SECRET-KEY-1", "AGE-SECRET-KEY-PQ-1"), "0-9A-Z", 40),
    TokenRule("postman_key", ("PMAK-",), "0-9a-f-", 40),
    TokenRule("grafana_token", ("glsa_", "glc_", "eyJrIjoi"), "A-Za-z0-9+/=_", 32),
    TokenRule("newrelic_key", ("NRAK-", "NRII-", "NRAA-", "NRRA-"), SLUG, 24),
    TokenRule("sentry_token", ("sntrys_", "sntryu_"), "A-Za-z0-9+/=_", 40),
    TokenRule("replicate_token", ("r8_",), WORD, 30),
    TokenRule("groq_key", ("gsk_",), WORD, 40),
    TokenRule("xai_key", ("xai-",), WORD, 40),
    TokenRule("perplexity_key", ("pplx-",), WORD, 40),
    TokenRule("nvidia_key", ("nvapi-",), SLUG, 40),
    TokenRule("langsmith_key", ("lsv2_pt_", "lsv2_sk_"), "0-9a-f_", 40),
    TokenRule("cloudflare_key", ("v1.0-",), "0-9a-f-", 80, edge=True),
    TokenRule("flyio_token", ("fm1r_", "fm1a_", "fm2_", "fo1_"), "A-Za-z0-9+/=_-", 40),
    TokenRule("netlify_token", ("nfp_", "nfc_", "nfo_", "nfu_"), WORD, 36),
    TokenRule("heroku_key", ("HRKU-AA",), SLUG, 40),
    TokenRule("rubygems_key", ("rubygems_",), HEX, 48),
    TokenRule("crates_token", ("cio",), WORD, 32, r"\b", edge=True),
    TokenRule("pulumi_token", ("pul-",), HEX, 40, edge=True),
    TokenRule("planetscale_token", ("pscale_tkn_", "pscale_pw_", "pscale_oauth_"), "A-Za-z0-9_.=-", 30),
    TokenRule("supabase_key", ("sb_secret_", "sbp_"), SLUG, 20),
    TokenRule("airtable_token", ("pat",), WORD, 14, r"\.[0-9a-f]{60,}", edge=True),
    TokenRule("figma_token", ("figd_", "figo_", "figoh_"), SLUG, 30),
    TokenRule("dropbox_token", ("sl.",), "A-Za-z0-9_.-", 100, edge=True),
    TokenRule("hubspot_token", ("pat-na1-", "pat-na2-", "pat-eu1-", "pat-ap1-"), "0-9a-f-", 36),
    TokenRule("tailscale_key", ("tskey-",), "A-Za-z0-9-", 20),
    TokenRule("onepassword_token", ("ops_eyJ",), "A-Za-z0-9+/=_-", 100),
    TokenRule("buildkite_token", ("bkua_", "bkct_"), HEX, 40),
    TokenRule("circleci_token", ("CCIPAT_", "CCIPRJ_"), "A-Za-z0-9_", 40),
    TokenRule("brevo_key", ("xkeysib-", "xsmtpsib-"), "A-Za-z0-9-", 60),
    TokenRule("artifactory_key", ("AKCp",), WORD, 60, edge=True),
    TokenRule("contentful_token", ("CFPAT-",), SLUG, 40),
    TokenRule("terraform_token", (".atlasv1.",), SLUG, 60),
    TokenRule("prefect_key", ("pnu_", "pnb_"), WORD, 36),
    TokenRule("azure_client_secret", tuple(f"{n}Q~" for n in range(10)), "A-Za-z0-9_.~-", 31),
)

_PEM_HEAD = r"-----BEGIN[ +%][A-Z0-9 +%]*PRIVATE[ +%]"
_PEM_NAME = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_PEM_END = r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_PEM_GAP = r"(?:[\s\"'+,;]|\\+[nrt]|\\)*"
_PEM_LINE = r"(?:[A-Za-z0-9+/=]{16,}|[A-Z][A-Za-z-]{2,20}: [ -!#-\[\]-~]{0,100})"
# The same lines behind something: a line number, the name of a file or container, a time, a sign of a diff or a quotation.
_EOL = r"(?:\r?\n|(?:\\+r)?\\+n)"
_SIGN = r"(?:[^\n\\]|\\+[tu])"
_COLOUR = r"(?:\x1b|\\+u001[bB])\[[0-9;]*[mK]"
_BEFORE = rf"(?:{_SIGN}{{0,60}}?(?:[^A-Za-z0-9+/=\n\\]|\\+t|\\+u[0-9a-fA-F]{{4}}|{_COLOUR}))?"
_PAINT = rf"(?:{_COLOUR})*(?:\x1b\[?[0-9;]*$)?\r?"
_PEM_TOP = rf"(?:{_EOL}{_BEFORE}[A-Z][A-Za-z-]{{2,20}}: {_SIGN}{{0,100}}){{0,4}}(?:{_EOL}{_SIGN}{{0,60}})?"
_PEM_ROW = rf"{_EOL}{_BEFORE}[A-Za-z0-9+/=]{{60,}}{_PAINT}"
_PEM_LAST = rf"(?:{_EOL}{_BEFORE}[A-Za-z0-9+/=]{{1,60}}{_PAINT}){{0,2}}{_EOL}{_BEFORE}{_PEM_END}"
_PEM_CUT = rf"{_EOL}(?:{_BEFORE}[A-Za-z0-9+/=]{{0,76}}|{_SIGN}{{0,60}})$"
_SCHEMES = "bearer|basic|token|apikey|api-key|key|negotiate|splunk|sso-key|bot|pat|jwt"
_LONG_SCHEMES = "digest|hawk|oauth|aws4-hmac-sha256|signature|sharedkey|hmac-[a-z0-9]+"
_SLASHES = r":(?:\\*/){2}"

_ENGINE = "(?:docker|podman|nerdctl|buildah)"
_APART = r"(?:[\"',\s\\]|\\[nrt])+"
_ARGUMENT = r"[^\s\"'\\]+"
PHRASES: tuple[PhraseRule, ...] = (
    PhraseRule(
        "private_key",
        _PEM_HEAD,
        rf"({_PEM_NAME}(?:{_PEM_GAP}{_PEM_LINE})*"
        rf"(?:{_PEM_GAP}[A-Za-z0-9+/=]{{0,64}}{_PEM_GAP}{_PEM_END}|{GAP}+[A-Za-z0-9+/=]{{1,15}}$)?)",
        ("-----BEGIN ",),
    ),
    PhraseRule(
        "private_key",
        _PEM_HEAD,
        rf"({_PEM_NAME}{_PAINT}{_PEM_TOP}(?:{_PEM_ROW})+(?:{_PEM_LAST}|{_PEM_CUT})?)",
    ),
    PhraseRule(
        "private_key",
        _PEM_HEAD,
        r"(-----BEGIN(?:\+|%20)[A-Z0-9+%]{0,60}PRIVATE(?:\+|%20)KEY[A-Za-z0-9+/=_.%-]*)",
    ),
    PhraseRule(
        "putty_key",
        r"Private-Lines: [0-9]",
        r"Private-Lines: [0-9]+((?:(?:\s|\\+[nrt])*[A-Za-z0-9+/=]{16,})+(?:(?:\s|\\+[nrt])+[A-Za-z0-9+/]{1,64}={1,2})?)",
        ("Private-Lines: ",),
    ),
    PhraseRule(
        "jwt",
        r"eyJ[A-Za-z0-9_-]{6}[A-Za-z0-9_=-]*\.[A-Za-z0-9_-]{6}",
        r"(eyJ[A-Za-z0-9_=-]{6,}\.[A-Za-z0-9_=-]{6,}(?:\.[A-Za-z0-9_=-]*){1,3})",
        ("eyJhbGciOi", "eyJ0eXAiOi", "eyJraWQiOi"),
    ),
    PhraseRule(
        "slack_webhook",
        r"hooks\.slack\.com",
        r"hooks\.slack\.com\\*/(?:services|workflows|triggers)\\*/([A-Za-z0-9/\\_+-]{16,})",
        ("hooks.slack.com/",),
    ),
    PhraseRule(
        "discord_webhook",
        r"discord(?:app)?\.com\\*/api",
        r"discord(?:app)?\.com\\*/api\\*/(?:v[0-9]+\\*/)?webhooks\\*/[0-9]+\\*/([A-Za-z0-9_-]{30,})",
        ("/api/webhooks/",),
    ),
    PhraseRule(
        "teams_webhook",
        r"\.webhook\.office\.com",
        r"\.webhook\.office\.com\\*/webhookb2\\*/([A-Za-z0-9@/\\-]{30,})",
        (".webhook.office.com/",),
    ),
    PhraseRule(
        "discord_token",
        r"[A-Za-z0-9_-]\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27}",
        rf"{EDGE}([MNO][A-Za-z0-9_-]{{22,27}}\.[A-Za-z0-9_-]{{6}}\.[A-Za-z0-9_-]{{27,}})",
    ),
    PhraseRule(
        "telegram_token",
        r"[0-9]:AA[A-Za-z0-9_-]{30}",
        r"([0-9]{6,12}:AA[A-Za-z0-9_-]{30,})",
    ),
    PhraseRule(
        "mailchimp_key",
        r"[0-9a-f]-us[0-9]",
        rf"{EDGE}([0-9a-f]{{32}}-us[0-9]{{1,2}})\b",
    ),
    PhraseRule(
        "newrelic_key",
        r"[0-9a-f]NRAL",
        r"([0-9a-f]{20,36}NRAL)\b",
    ),
    PhraseRule(
        "azure_storage_key",
        r"(?:AccountKey|SharedAccessKey)=[A-Za-z0-9+/]",
        r"(?:AccountKey|SharedAccessKey)=([A-Za-z0-9+/=%\\]{30,})",
        ("AccountKey=", "SharedAccessKey="),
    ),
    PhraseRule(
        "azure_sas",
        r"(?:[?&]|\\u0026|amp;)sig=[A-Za-z0-9%]{6}",
        r"(?:[?&]|\\u0026|amp;)sig=([A-Za-z0-9%+/=_-]{24,})",
    ),
    PhraseRule(
        "aws_signature",
        r"(?i:X-Amz-(?:Signature|Security-Token|Credential))(?:=|%3[dD])",
        r"(?i:X-Amz-(?:Signature|Security-Token|Credential))(?:=|%3[dD])([A-Za-z0-9%+/=_-]{16,})",
    ),
    PhraseRule(
        "url_password",
        rf"{_SLASHES}[^\s/?\"'<>@]*:[^\s/?\"'<>]*@",
        rf"{_SLASHES}[^\s/?\"'<>@:]*:([^\s/?\"'<>\\]+)@",
        check="not_placeholder",
    ),
    PhraseRule(
        "url_password",
        rf"{_SLASHES}[^\s/?\"'<>@:]*\[redacted:",
        rf"{_SLASHES}(?:[^\s/?\"'<>@:]*\[redacted:[a-z0-9_]+\])+[^\s/?\"'<>@:]*:([^\s/?\"'<>\\]+)@",
        check="not_reference",
    ),
    PhraseRule(
        "url_password",
        rf"{_SLASHES}[0-9a-f]{{16}}",
        rf"{_SLASHES}([0-9a-f]{{40,}})(?::[^\s/?\"'<>@]*)?@",
    ),
    PhraseRule(
        "url_password",
        r"(?i:%3a%2f%2f)[^\s\"'<>&]*(?i:%40)",
        r"(?i:%3a%2f%2f)[A-Za-z0-9._~-]*(?i:%3a)"
        r"((?:[A-Za-z0-9._~!$*()+-]|%[013-9a-fA-F][0-9a-fA-F]|%2[0-9a-eA-E])+)(?i:%40)",
    ),
    PhraseRule(
        "authorization",
        rf"(?i:authorization)[\"'\\\]]*{GAP}*[:=,]",
        rf"(?i:authorization)[\"'\\\]]*{GAP}{{0,4}}[:=,]{GAP}{{0,4}}[\"'\\]*(?i:{_SCHEMES})[ +]\s*([^\s\"'\\,;<>{{}}$]{{4,}})",
        check="not_reference",
    ),
    PhraseRule(
        "authorization",
        rf"(?i:authorization)[^\n]{{0,40}}(?i:{_LONG_SCHEMES})[ +]",
        rf"(?i:authorization)[\"'\\\]]*\s{{0,4}}[:=,]\s{{0,4}}[\"'\\]*(?i:{_LONG_SCHEMES})[ +]([^\r\n{{}}<>$]{{8,}})",
    ),
    PhraseRule(
        "bearer_token",
        rf"(?i:bearer)(?:{GAP}|\+|%20)+[\"'\\]*[A-Za-z0-9._~+/=-]{{12}}",
        r"(?i:bearer)(?:\s|\+|%20)+[\"']?([A-Za-z0-9._~+/=-]{12,})",
        ("Bearer ", "bearer "),
        check="random",
    ),
    PhraseRule(
        "basic_auth",
        rf"(?i:basic){GAP}+[A-Za-z0-9+/_-]{{8}}",
        r"(?i:basic)\s+([A-Za-z0-9+/_-]{8,}={0,2})",
        ("Basic ",),
        check="user_and_password",
    ),
    PhraseRule(
        "basic_auth",
        rf"\"auth\\*\"{GAP}*:{GAP}*\\*\"[A-Za-z0-9+/]{{6}}",
        r"\"auth\\*\"\s*:\s*\\*\"([A-Za-z0-9+/]{6,}={0,2})\\*\"",
        check="user_and_password",
    ),
    PhraseRule(
        "basic_auth",
        rf"{RAW_EDGE}(?:-u|--user|--proxy-user)(?:[\"',\s=]|\\)",
        r"(?:\s|[\"',])(?:-u|--user|--proxy-user)[\"',\s=]{1,4}[^\s:\"']+:([^\s\"'\\]+)",
        check="after_curl",
        to_quote=True,
    ),
    PhraseRule(
        "password",
        r"sshpass",
        r"sshpass[\"',\s]{1,4}-p[\"',\s]{0,4}([^\s\"'\\]+)",
        to_quote=True,
    ),
    PhraseRule(
        "password",
        rf"{_ENGINE}{_APART}(?:login[\"',\s\\]|-)",
        rf"{_ENGINE}(?:{_APART}-{_ARGUMENT}(?:{_APART}{_ARGUMENT})?)*{_APART}login(?:[^\n;|&]|\\\n)*?"
        r"[\"',\s]-p[\"',\s\\=]*([^\s\"'`\\=-][^\s\"'`\\]*)",
        check="argument",
        to_quote=True,
    ),
    PhraseRule(
        "password",
        rf"(?:machine{GAP}+[^\s\"'\\]+|default){GAP}+(?:login|password){GAP}",
        rf"(?:(?:machine{GAP}+[^\s\"'\\]+|default){GAP}+login{GAP}+[^\s\"'\\]+(?:{GAP}+account{GAP}+[^\s\"'\\]+)?"
        rf"|machine{GAP}+[A-Za-z0-9-]+\.[A-Za-z0-9.-]+){GAP}+password{GAP}+([^\s\"'\\]+)",
        check="argument",
    ),
    PhraseRule(
        "cookie",
        rf"(?i:cookie)[\"'\\]*{GAP}*:{GAP}*[\"'\\]*[A-Za-z0-9_.-]+=",
        rf"(?i:cookie)[\"'\\]*{GAP}{{0,4}}:{GAP}{{0,4}}[\"'\\]*[A-Za-z0-9_.-]+=([^\r\n\"'\\]+)",
    ),
    PhraseRule(
        "seed_phrase",
        r"(?i:mnemonic|seed[ _-]phrase)",
        r"(?i:mnemonic|seed[ _-]phrase)[\"'\\]*\s{0,4}[:=]\s{0,4}[\"'\\]*([a-z]+(?: [a-z]+){11,23})",
    ),
)
