//! Tokens whose issuers publish their form: a prefix, an alphabet, a length.

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, MatchKind};

use super::chance::stands_for_token;
use super::finder::{Finder, best, quick};
use super::{Hit, MAX_LITERALS};

/// What the part after the prefix is made of.
#[derive(Clone, Copy)]
enum Of {
    /// Letters and digits.
    Alnum,
    /// Those, `_` and `-`.
    Url,
    /// Those and `.`.
    Dotted,
    /// Those of base64: letters, digits, `+`, `/`, `=`.
    Base64,
    /// Hexadecimal, small letters.
    Hex,
    /// Capitals and 2 to 7 (RFC 4648, section 6).
    Base32,
    /// Capitals and digits.
    Upper,
}

impl Of {
    fn has(self, byte: u8) -> bool {
        match self {
            Self::Alnum => byte.is_ascii_alphanumeric(),
            Self::Url => byte.is_ascii_alphanumeric() || b"_-".contains(&byte),
            Self::Dotted => byte.is_ascii_alphanumeric() || b"_-.".contains(&byte),
            Self::Base64 => byte.is_ascii_alphanumeric() || b"+/=".contains(&byte),
            Self::Hex => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
            Self::Base32 => matches!(byte, b'A'..=b'Z' | b'2'..=b'7'),
            Self::Upper => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
        }
    }
}

/// Rule, prefix, alphabet of the rest, its shortest and its longest length in bytes.
type Form = (&'static str, &'static str, Of, usize, usize);

/// No upper bound of the issuer's.
const LONG: usize = 1024;

const FORMS: &[Form] = &[
    ("github-token", "ghp_", Of::Alnum, 36, 255),
    ("github-token", "gho_", Of::Alnum, 36, 255),
    ("github-token", "ghu_", Of::Alnum, 36, 255),
    ("github-token", "ghs_", Of::Dotted, 36, LONG),
    ("github-token", "ghr_", Of::Alnum, 36, 255),
    ("github-token", "github_pat_", Of::Url, 82, 255),
    ("gitlab-token", "glpat-", Of::Dotted, 20, 300),
    ("gitlab-token", "gldt-", Of::Url, 20, 64),
    ("gitlab-token", "glrt-", Of::Dotted, 20, 300),
    ("gitlab-token", "glcbt-", Of::Dotted, 20, 300),
    ("gitlab-token", "glptt-", Of::Hex, 40, 40),
    ("gitlab-token", "glsoat-", Of::Url, 20, 64),
    ("gitlab-token", "glimt-", Of::Url, 20, 64),
    ("gitlab-token", "glagent-", Of::Url, 50, 128),
    ("slack-token", "xoxb-", Of::Url, 24, 255),
    ("slack-token", "xoxp-", Of::Url, 24, 255),
    ("slack-token", "xoxa-", Of::Url, 24, 255),
    ("slack-token", "xoxr-", Of::Url, 24, 255),
    ("slack-token", "xoxs-", Of::Url, 24, 255),
    ("slack-token", "xoxe.xox", Of::Url, 24, 300),
    ("slack-token", "xapp-1-", Of::Url, 40, 255),
    ("slack-webhook", "hooks.slack.com/services/T", Of::Base64, 40, 60),
    ("discord-webhook", "discord.com/api/webhooks/", Of::Url, 17, 20),
    ("aws-access-key", "AKIA", Of::Base32, 16, 16),
    ("aws-access-key", "ASIA", Of::Base32, 16, 16),
    ("google-api-key", "AIza", Of::Url, 35, 35),
    ("google-oauth", "ya29.", Of::Url, 60, LONG),
    ("google-oauth", "GOCSPX-", Of::Url, 28, 28),
    ("stripe-key", "sk_live_", Of::Alnum, 16, 255),
    ("stripe-key", "sk_test_", Of::Alnum, 16, 255),
    ("stripe-key", "rk_live_", Of::Alnum, 16, 255),
    ("stripe-key", "rk_test_", Of::Alnum, 16, 255),
    ("stripe-key", "whsec_", Of::Base64, 32, 64),
    ("anthropic-key", "sk-ant-", Of::Url, 40, 255),
    ("openai-key", "sk-proj-", Of::Url, 40, 255),
    ("openai-key", "sk-svcacct-", Of::Url, 40, 255),
    ("openai-key", "sk-admin-", Of::Url, 40, 255),
    ("openrouter-key", "sk-or-v1-", Of::Hex, 64, 64),
    ("openai-key", "sk-", Of::Alnum, 48, 48),
    ("deepseek-key", "sk-", Of::Hex, 32, 32),
    ("groq-key", "gsk_", Of::Alnum, 52, 52),
    ("xai-key", "xai-", Of::Alnum, 70, 100),
    ("replicate-token", "r8_", Of::Alnum, 37, 37),
    ("perplexity-key", "pplx-", Of::Alnum, 40, 64),
    ("hugging-face-token", "hf_", Of::Alnum, 34, 40),
    ("langsmith-key", "lsv2_pt_", Of::Url, 43, 43),
    ("langsmith-key", "lsv2_sk_", Of::Url, 43, 43),
    ("npm-token", "npm_", Of::Alnum, 36, 36),
    ("pypi-token", "pypi-AgE", Of::Url, 80, LONG),
    ("rubygems-key", "rubygems_", Of::Hex, 48, 48),
    ("docker-token", "dckr_pat_", Of::Url, 27, 27),
    ("sendgrid-key", "SG.", Of::Dotted, 66, 66),
    ("mailgun-key", "key-", Of::Hex, 32, 32),
    ("brevo-key", "xkeysib-", Of::Url, 81, 81),
    ("digitalocean-token", "dop_v1_", Of::Hex, 64, 64),
    ("digitalocean-token", "doo_v1_", Of::Hex, 64, 64),
    ("digitalocean-token", "dor_v1_", Of::Hex, 64, 64),
    ("linear-key", "lin_api_", Of::Alnum, 40, 40),
    ("linear-key", "lin_oauth_", Of::Alnum, 40, 64),
    ("notion-token", "ntn_", Of::Alnum, 40, 60),
    ("notion-token", "secret_", Of::Alnum, 43, 43),
    ("shopify-token", "shpat_", Of::Hex, 32, 32),
    ("shopify-token", "shpca_", Of::Hex, 32, 32),
    ("shopify-token", "shppa_", Of::Hex, 32, 32),
    ("shopify-token", "shpss_", Of::Hex, 32, 32),
    ("square-token", "sq0atp-", Of::Url, 22, 22),
    ("square-token", "sq0csp-", Of::Url, 43, 43),
    ("databricks-token", "dapi", Of::Hex, 32, 32),
    ("vault-token", "hvs.", Of::Url, 24, 300),
    ("vault-token", "hvb.", Of::Url, 100, 300),
    ("doppler-token", "dp.pt.", Of::Alnum, 40, 44),
    ("doppler-token", "dp.st.", Of::Dotted, 40, 80),
    ("figma-token", "figd_", Of::Url, 40, 64),
    ("grafana-token", "glsa_", Of::Url, 41, 41),
    ("grafana-token", "glc_", Of::Base64, 40, 400),
    ("new-relic-key", "NRAK-", Of::Upper, 27, 27),
    ("planetscale-token", "pscale_tkn_", Of::Dotted, 32, 64),
    ("planetscale-token", "pscale_pw_", Of::Dotted, 32, 64),
    ("postman-key", "PMAK-", Of::Url, 59, 59),
    ("pulumi-token", "pul-", Of::Hex, 40, 40),
    ("sentry-token", "sntrys_", Of::Base64, 80, LONG),
    ("sentry-token", "sntryu_", Of::Hex, 64, 64),
    ("supabase-token", "sbp_", Of::Hex, 40, 40),
    ("supabase-token", "sb_secret_", Of::Url, 31, 60),
    ("fly-token", "fm2_", Of::Base64, 80, LONG),
    ("atlassian-token", "ATATT3", Of::Dotted, 100, 300),
    ("tailscale-key", "tskey-auth-", Of::Url, 24, 80),
    ("tailscale-key", "tskey-api-", Of::Url, 24, 80),
    ("age-key", "AGE-SECRET-KEY-1", Of::Upper, 58, 58),
    ("1password-token", "ops_eyJ", Of::Base64, 250, LONG),
    ("circleci-token", "CCIPAT_", Of::Url, 40, 80),
    ("buildkite-token", "bkua_", Of::Hex, 40, 40),
    ("netlify-token", "nfp_", Of::Alnum, 36, 40),
    ("heroku-key", "HRKU-", Of::Url, 36, 80),
    ("contentful-token", "CFPAT-", Of::Url, 43, 43),
    ("typeform-token", "tfp_", Of::Dotted, 40, 64),
    ("shippo-token", "shippo_live_", Of::Hex, 40, 40),
    ("readme-token", "rdme_", Of::Alnum, 70, 70),
    ("prefect-token", "pnu_", Of::Alnum, 36, 36),
    ("easypost-key", "EZAK", Of::Alnum, 54, 54),
];

static PREFIXES: Finder = Finder::new(|| quick(build), || best(build));

fn build(builder: &mut AhoCorasickBuilder) -> AhoCorasick {
    builder
        .match_kind(MatchKind::Standard)
        .build(FORMS.iter().map(|form| form.1))
        .expect("the table is small and fixed")
}

pub(super) fn scan(text: &[u8], hits: &mut Vec<Hit>) {
    let mut count = 0;
    for found in PREFIXES.reading(text.len()).find_overlapping_iter(text) {
        let (rule, prefix, of, least, most) = FORMS[found.pattern().as_usize()];
        let (start, after) = (found.start(), found.end());
        // Within a longer word it is no prefix, and within base64 it is chance.
        let before = start.checked_sub(1).map(|at| text[at]);
        let word = |b: u8| b.is_ascii_alphanumeric() || b"_+".contains(&b);
        if before.is_some_and(word) {
            continue;
        }
        let rest = &text[after..text.len().min(after + most + 1)];
        let mut length = rest.iter().take_while(|b| of.has(**b)).count();
        // A full stop ends a sentence.
        while length > 0 && rest[length - 1] == b'.' {
            length -= 1;
        }
        if !(least..=most).contains(&length) {
            continue;
        }
        // An alphabet without them ends at one of these, and the form with it.
        let next = text.get(after + length);
        if next.is_some_and(|b| b.is_ascii_alphanumeric() || b"_/+".contains(b)) {
            let path = matches!(of, Of::Url | Of::Dotted) && next == Some(&b'/');
            if !path {
                continue;
            }
        }
        let body = &rest[..length];
        let has = |kind: fn(&u8) -> bool| body.iter().any(kind);
        let mixed = has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
        let word = !(matches!(of, Of::Base32) || has(u8::is_ascii_digit) || mixed);
        if word || stands_for_token(body) {
            continue;
        }
        hits.push(Hit { rule, range: start..after + length, public: prefix.len() });
        count += 1;
        if count == MAX_LITERALS {
            break;
        }
    }
}
