"""Captioning: a picture in, a description out. Each picture is encoded once for all of its captions."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn

from regard.bundle import Bundle
from regard.data.batch import Batch, example_index, per_sequence, per_token, sequences
from regard.data.blocks import Blocks
from regard.data.fields import Fields, TextsField
from regard.data.fields.nested import split_parts
from regard.data.rows import Lengths, Numbers, Rows, offsets_of
from regard.data.store import Store
from regard.models.build import build_captioner
from regard.models.memory import Memory
from regard.models.seq2seq import Seq2Seq
from regard.models.show_attend_tell import AttendedTokens, RegionDecoder
from regard.nn.cross_entropy import IGNORED
from regard.nn.ragged import NestedRagged, Ragged
from regard.predict.captioner import Captioner
from regard.recipe import Captioning, Corpus, Filter, PictureReading, ShowAttendTell
from regard.score import Score
from regard.score.cider import caption_scores
from regard.tasks.task import Predictions, ProcessGroup, Sample, Task
from regard.tasks.token_loss import token_loss, token_sums
from regard.text import END, START

SAMPLES = 3  # shown at each validation


@dataclass(frozen=True, eq=False)
class CaptionBatch(Batch):
    """Pictures and their captions, for teacher forcing."""

    image_BCHW: UInt8[Tensor, "B C H W"] = per_sequence(fill=0)
    """The pixels of each picture."""
    captions: Ragged = sequences()
    """The decoder's input, for each picture: `<s>` and the tokens of each of its captions."""
    labels_N: Int64[Tensor, " N"] = per_token("captions", fill=IGNORED)
    """The expected output for each token of `captions`: each caption, then `</s>`."""
    sizes: Ragged = sequences(fill=0)
    """The number of tokens of each caption of each picture."""
    index_B: Int64[Tensor, " B"] = example_index()
    """Numbers of the examples."""

    @property
    def units(self) -> int:
        """The number of tokens of the captions, `</s>` included."""
        return self.captions.tokens


@dataclass(frozen=True)
class CaptioningTask(Task):
    """Captions of the field `captions` for the picture of the field `image`."""

    @property
    def filters(self) -> Collection[Filter]:
        """The lengths of a picture and its captions are not compared."""
        return tuple(name for name in self.recipe.data.drop if name not in ("ratio", "copy"))

    @property
    def divisible(self) -> bool:
        """Hard attention has a moving average of its reward, which threads would update in an order of their own."""
        return not (isinstance(self.recipe.model, ShowAttendTell) and self.recipe.model.attention == "hard")

    @property
    def metrics(self) -> Sequence[str]:
        """CIDEr-D and BLEU-4 of greedy captions can select the best weights."""
        return ("cider", "bleu")

    def sequence_lengths(self, lengths: Mapping[str, Lengths]) -> tuple[Numbers, ...]:
        """Return the number of regions of each picture, and the tokens of its captions with one symbol each."""
        captions = np.asarray(lengths["captions"], np.int64)
        return np.full_like(captions, self._regions), captions

    def collate(self, rows: Mapping[str, Rows], index: Numbers) -> CaptionBatch:
        """Add the symbols that decoder and loss expect."""
        captions = rows["captions"]  # the ids of each caption, then `</s>`
        _, sizes = split_parts(captions)
        is_first = np.concatenate([[END], captions.ids[:-1]]) == END
        inputs = np.where(is_first, START, np.concatenate([[START], captions.ids[:-1]])).astype(np.int64)
        return CaptionBatch(
            rows["image"].to_tensor(*self.recipe.image.shape),
            Ragged.from_arrays(inputs, captions.offsets - captions.offsets[0]),
            torch.from_numpy(captions.ids.astype(np.int64)),
            Ragged.from_arrays(sizes.ids.astype(np.int64) + 1, offsets_of(sizes.lengths)),
            torch.from_numpy(index),
        )

    def build(self, sizes: Mapping[str, int]) -> Seq2Seq:
        """Build the model of the recipe's family."""
        return build_captioner(self.recipe.model, self.recipe.image, sizes["captions"], self.recipe.captioning)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the cross-entropy with label smoothing, and the terms of soft and hard attention."""
        assert isinstance(model, Seq2Seq)
        assert isinstance(batch, CaptionBatch)
        captions, labels_N, memory = encode_captions(model, batch)
        if not isinstance(model.decoder, RegionDecoder):
            states_ND = model.decoder(captions, memory)
            return token_loss(model.output, states_ND, labels_N, self.recipe.train.smoothing)
        attended = model.decoder.attended(captions, memory)
        return attentive_loss(model, captions, attended, labels_N, self.recipe.captioning, self.recipe.train.smoothing)

    def evaluate(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return summed cross-entropy and number of correct tokens, teacher-forced."""
        assert isinstance(model, Seq2Seq)
        assert isinstance(batch, CaptionBatch)
        with torch.no_grad():
            captions, labels_N, memory = encode_captions(model, batch)
            states_ND = model.decoder(captions, memory)
        return token_sums(model.output, states_ND, labels_N)

    def units(self, lengths: Mapping[str, Lengths]) -> int:
        """Return the number of tokens of the captions, `</s>` included."""
        return int(lengths["captions"].sum())

    def tokens(self, lengths: Mapping[str, Lengths]) -> int:
        """Return the regions or the tokens of captions, whichever are more."""
        return max(int(counts.sum()) for counts in self.sequence_lengths(lengths))

    def field_of(self, parameter: str) -> str:
        """Return `captions`, the only field with a vocabulary."""
        return "captions"

    def flops(self, model: nn.Module, lengths: Mapping[str, Lengths]) -> float:
        """Return the operations of encoder, decoder and output layer."""
        assert isinstance(model, Seq2Seq)
        regions, captions = self.sequence_lengths(lengths)
        return model.forward_flops(regions.tolist(), captions.tolist())

    def predict(
        self, model: nn.Module, fields: Fields, store: Store | Blocks, corpus: Corpus, count: int, group: ProcessGroup
    ) -> Predictions:
        """Describe some pictures greedily, and score the captions."""
        names, references = examples_of(store, fields, count)
        captions = self._describe(model, fields, names, 1, group)
        shown = zip(names[:SAMPLES], references[:SAMPLES], captions[:SAMPLES], strict=True)
        samples = tuple(Sample(name, texts[0], caption) for name, texts, caption in shown)
        return Predictions(caption_scores(captions, references, lowercase=self.recipe.text.lowercase), samples)

    def final_scores(
        self, model: nn.Module, fields: Fields, store: Store | Blocks, corpus: Corpus, group: ProcessGroup
    ) -> tuple[Score, ...]:
        """Describe the pictures of a whole corpus by beam search, and compute every score that is reported."""
        names, references = examples_of(store, fields, len(store))
        captions = self._describe(model, fields, names, self.recipe.decode.beam, group)
        return caption_scores(captions, references, lowercase=self.recipe.text.lowercase)

    def predictor(self, bundle: Bundle, precision: str = "auto") -> Captioner:
        """Return a captioner."""
        return Captioner.from_bundle(bundle, precision)

    @property
    def _regions(self) -> int:
        """The number of regions of a picture."""
        assert isinstance(self.recipe.model, PictureReading)
        return (self.recipe.image.size // self.recipe.model.patch) ** 2

    def _describe(
        self, model: nn.Module, fields: Fields, names: Sequence[str], beam: int, group: ProcessGroup
    ) -> list[str]:
        """Describe pictures, each process its share; return all captions on every process."""
        assert isinstance(model, Seq2Seq)
        captioner = Captioner(model, fields, self.recipe.decode)
        captions = captioner(names[group.rank :: group.world_size], beam=beam, attention=False)
        return group.gather_strided([caption.text for caption in captions])


def encode_captions(model: Seq2Seq, batch: CaptionBatch) -> tuple[Ragged, Int64[Tensor, " N"], Memory]:
    """Return the captions of all pictures, one sequence each, their labels, and the memory of each caption's picture.

    Tokens that fill up a batch come last, and are left out.
    """
    parts = NestedRagged(batch.captions, batch.sizes).parts()
    labels_N, memory = batch.labels_N[: parts.tokens.tokens], model.encode(batch.image_BCHW)
    return parts.tokens, labels_N, memory.take(parts.members.sequence_N)


def attentive_loss(
    model: Seq2Seq,
    captions: Ragged,
    attended: AttendedTokens,
    labels_N: Int64[Tensor, " N"],
    options: Captioning,
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Return the loss of a decoder with attention to regions, summed over the tokens.

    Args:
        model: The model; its decoder's baseline is updated in training with hard attention.
        captions: The inputs of the decoder.
        attended: What the decoder returned.
        labels_N: The expected outputs.
        options: The weights of the terms that are added to the cross-entropy.
        smoothing: Label smoothing.
    """
    loss = token_loss(model.output, attended.states_ND, labels_N, smoothing)
    layout = captions.layout
    if options.spread:
        sums_BL = attended.probabilities_NL.new_zeros(len(layout), attended.probabilities_NL.shape[1])
        sums_BL = sums_BL.index_add(0, layout.sequence_N, attended.probabilities_NL)
        loss = loss + options.spread * ((1 - sums_BL) ** 2).sum()
    decoder = model.decoder
    assert isinstance(decoder, RegionDecoder)
    if decoder.baseline is None or attended.sampled_B is None:
        return loss
    with torch.no_grad():
        logits_NV = model.output(attended.states_ND)
        entropy_N = -logits_NV.log_softmax(-1, dtype=torch.promote_types(logits_NV.dtype, torch.float32)).gather(
            -1, labels_N[:, None]
        )[:, 0]
        logprobs_B = -entropy_N.new_zeros(len(layout)).index_add(0, layout.sequence_N, entropy_N)
    loss = loss + reinforce_terms(attended, captions, logprobs_B - decoder.baseline.value, options)
    decoder.baseline.update(logprobs_B)
    return loss


def reinforce_terms(
    attended: AttendedTokens, captions: Ragged, advantage_B: Float[Tensor, " B"], options: Captioning
) -> Float[Tensor, ""]:
    """Return what hard attention adds to the loss: REINFORCE, and the entropy of the locations.

    Its gradient is that of -λ_r (log p(y | s, a) - b) log p(s | a) - λ_e H[s] (Xu et al. 2015, eq. 12), for captions
    whose regions were sampled.

    Args:
        attended: What the decoder returned.
        captions: The inputs of the decoder.
        advantage_B: log p(y | s, a) - b for each caption.
        options: The weights λ_r and λ_e.
    """
    assert attended.sampled_B is not None, "regions were sampled"
    p_NL = attended.probabilities_NL
    log_NL = p_NL.clamp(min=torch.finfo(p_NL.dtype).tiny).log()
    chosen_N = (attended.weights_NL.detach() * log_NL).sum(-1)
    entropy_N = -(p_NL * log_NL).sum(-1)
    sampled_N = attended.sampled_B[captions.sequence_N.long()]
    advantage_N = advantage_B.to(p_NL.dtype)[captions.sequence_N.long()]
    terms_N = options.reinforce * advantage_N * chosen_N + options.entropy * entropy_N
    return -(terms_N * sampled_N).sum()


def examples_of(store: Store | Blocks, fields: Fields, count: int) -> tuple[list[str], list[list[str]]]:
    """Return the names of `count` pictures, and their captions; a smaller count gives a prefix of a larger one."""
    assert isinstance(store, Store), "the recipe allows no blocks in captioning"
    field = fields["captions"]
    assert isinstance(field, TextsField)
    order = np.random.default_rng(0).permutation(len(store)) if count < len(store) else np.arange(len(store))
    columns = store.text(order[:count])
    return list(columns["image"]), [field.parts(value) for value in columns["captions"]]
