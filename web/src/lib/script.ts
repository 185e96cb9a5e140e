/**
 * Arabic script: where a token ends between two joining letters, both sides get a zero-width joiner, so that each
 * token keeps the letter shapes it has in the word.
 */

export const JOINER = '\u200d'

/** How a letter joins: on both sides, only to the letter before it, not at all; or a combining mark. */
export type Joining = 'both' | 'before' | 'none' | 'mark'

// Unicode joining types (ArabicShaping.txt) of the letters of Arabic, Persian, Urdu and related languages.
const BEFORE_ONLY = new Set(
  Array.from('آأؤإاةدذرزوٱٲٳٵٶٷڈډڊڋڌڍڎڏڐڑڒړڔڕږڗژڙۀۃۄۅۆۇۈۉۊۋۍۏےۓەۮۯݙݚݛݫݬݱݳݴݸݹ', (letter) => letter.codePointAt(0)!),
)
const NOT_JOINING = new Set([0x0621, 0x0674, 0x06d4, 0x06dd, 0x200c])

/** Return how the letter of a code point joins. */
export function joining(point: number): Joining {
  const mark =
    (point >= 0x064b && point <= 0x065f) || point === 0x0670 || (point >= 0x06d6 && point <= 0x06dc) ||
    (point >= 0x06df && point <= 0x06e4) || (point >= 0x0610 && point <= 0x061a)
  if (mark) return 'mark'
  if (NOT_JOINING.has(point)) return 'none'
  if (BEFORE_ONLY.has(point)) return 'before'
  const letter =
    (point >= 0x0620 && point <= 0x064a) || (point >= 0x066e && point <= 0x06d3) ||
    (point >= 0x06fa && point <= 0x06ff && point !== 0x06fd && point !== 0x06fe) ||
    (point >= 0x0750 && point <= 0x077f) || point === 0x200d
  return letter ? 'both' : 'none'
}

function firstLetter(text: string): Joining {
  for (const letter of text) {
    const how = joining(letter.codePointAt(0)!)
    if (how !== 'mark') return how
  }
  return 'none'
}

function lastLetter(text: string): Joining {
  for (const letter of Array.from(text).reverse()) {
    const how = joining(letter.codePointAt(0)!)
    if (how !== 'mark') return how
  }
  return 'none'
}

/** Return whether the last letter of one text joins the first letter of the next. */
export function joined(left: string, right: string): boolean {
  const first = firstLetter(right)
  return lastLetter(left) === 'both' && (first === 'both' || first === 'before')
}

/** Add joiners to texts that continue the word of the text before them, where their letters join. */
export function shaped(texts: readonly string[], continues: readonly boolean[]): string[] {
  const result = [...texts]
  for (let i = 1; i < texts.length; i++) {
    if (continues[i] && joined(texts[i - 1]!, texts[i]!)) {
      result[i - 1] += JOINER
      result[i] = JOINER + result[i]
    }
  }
  return result
}

const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/

/** Isolate a right-to-left text, so that it does not reorder the text around it. */
export function isolated(text: string): string {
  return RIGHT_TO_LEFT.test(text) ? `\u2068${text}\u2069` : text
}

/** Return whether a text runs from right to left: whether its first letter does. */
export function isRightToLeft(text: string): boolean {
  return RIGHT_TO_LEFT.test(/\p{L}/u.exec(text)?.[0] ?? '')
}
